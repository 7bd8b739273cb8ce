// What whole maps and single rows share.
#pragma once

#include <algorithm>

#include "errors.h"
#include "vectors.h"

extern "C" {

// Numbers of head_dim, one after the other, by batch, head and position; strides count numbers.
struct Heads {
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};
}

namespace ea {

// The numbers of one head at one position.
template <typename T>
T* row(const Heads& heads, int64_t n, int64_t h, int64_t position) {
  return static_cast<T*>(heads.data) + n * heads.batch_stride + h * heads.head_stride +
         position * heads.row_stride;
}

// task(thread, begin, end): equal, consecutive shares of the batch, so that sums do not depend on
// timing.
template <typename Task>
void each_share(int64_t batch, int64_t threads, Task task) {
  FirstError error;
#pragma omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1)
  for (int64_t thread = 0; thread < threads; ++thread)
    error.keep([&] { task(thread, batch * thread / threads, batch * (thread + 1) / threads); });
  error.rethrow();
}

// -1 where columns from x on are in a map of src_len columns and visible, else 0; without
// `visible`, all in the map are.
template <typename T>
Integers<T> flags(const uint8_t* visible, int64_t x, int64_t src_len) {
  typedef uint8_t bytes __attribute__((vector_size(sizeof(Vector<T>) / sizeof(T))));
  uint8_t found[lanes<T>] = {};
  const int64_t begin = std::max<int64_t>(0, -x);
  const int64_t end = std::min(lanes<T>, src_len - x);
  if (visible && begin == 0 && end == lanes<T>) {
    std::memcpy(found, visible + x, lanes<T>);
  } else {
    for (int64_t lane = begin; lane < end; ++lane) found[lane] = visible ? visible[x + lane] : 1;
  }
  const auto wide = __builtin_convertvector(load<bytes>(found), Integers<T>);
  return wide != 0;
}

// probs: softmax over the columns of first..last, whole vectors, that are visible: where seen(x),
// of the columns from x on, is -1. 0 in the others, and everywhere where none is visible.
template <typename T, typename Seen>
void softmax_where(const T* logits, Seen seen, T* probs, int64_t first, int64_t last) {
  const Vector<T> lowest = Vector<T>{} - T(INFINITY);
  Vector<T> highest = lowest;
  for (int64_t x = first; x < last; x += lanes<T>) {
    const Vector<T> values = seen(x) ? load<Vector<T>>(logits + x) : lowest;
    highest = highest > values ? highest : values;
  }
  const T maximum = largest<T>(highest);
  Vector<T> sums = {};
  for (int64_t x = first; x < last; x += lanes<T>) {
    const Vector<T> power = exponential(load<Vector<T>>(logits + x) - maximum);
    const Vector<T> values = seen(x) ? power : Vector<T>{};
    store(probs + x, values);
    sums += values;
  }
  const T sum = total<T>(sums);
  const T scale = sum == T(0) ? T(0) : T(1) / sum;
  for (int64_t x = first; x < last; x += lanes<T>)
    store(probs + x, load<Vector<T>>(probs + x) * scale);
}
template <typename T>
void softmax_line(const T* logits, const typename Lanes<T>::integer* visible, T* probs,
                  int64_t first, int64_t last) {
  const auto seen = [&](int64_t x) { return load<Integers<T>>(visible + x); };
  softmax_where(logits, seen, probs, first, last);
}
// Over so many columns, all of them visible.
inline void softmax_line(const float* logits, int64_t columns, float* probs) {
  const auto seen = [&](int64_t x) { return first_lanes(columns - x); };
  softmax_where(logits, seen, probs, 0, columns);
}

}  // namespace ea
