// Memory for numbers.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "vectors.h"

namespace ea {

// Numbers that begin at a whole vector. One vector beyond the last can be read, and is 0 or finite;
// what lies before is not initialised.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) { reserve(count); }

  // Room for so many; what was there is lost where that is more than before.
  void reserve(int64_t count) {
    if (count <= count_) return;
    const size_t bytes = (whole_vectors(count, lanes<T>) + lanes<T>) * sizeof(T);
    numbers_.reset(static_cast<T*>(std::aligned_alloc(vector_bytes, bytes)));
    if (!numbers_) throw std::bad_alloc();
    std::memset(numbers_.get() + count, 0, bytes - count * sizeof(T));
    count_ = count;
  }

  T* data() { return numbers_.get(); }
  const T* data() const { return numbers_.get(); }

 private:
  struct Free {
    void operator()(T* numbers) const { std::free(numbers); }
  };
  std::unique_ptr<T, Free> numbers_;
  int64_t count_ = 0;
};

}  // namespace ea
