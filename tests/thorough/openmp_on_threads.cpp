// OpenMP's parallel loops on plain threads, which gcc's thread sanitizer understands; of libgomp's
// own waiting it sees nothing, and would take every loop for a race. See scripts/sanitize.sh.

#include <thread>
#include <vector>

namespace {
thread_local int number = 0, count = 1;
}

extern "C" {

int omp_get_thread_num() { return number; }
int omp_get_num_threads() { return count; }

void GOMP_parallel(void (*share)(void*), void* data, unsigned threads, unsigned) {
  const auto run = [=](int own) {
    number = own;
    count = static_cast<int>(threads);
    share(data);
    number = 0;
    count = 1;
  };
  std::vector<std::thread> others;
  for (unsigned n = 1; n < threads; ++n) others.emplace_back(run, n);
  run(0);
  for (auto& other : others) other.join();
}
}
