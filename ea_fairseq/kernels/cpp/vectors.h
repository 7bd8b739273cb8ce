// Whole vectors of numbers, by the compiler's vector extension: any processor, one source.
#pragma once

#include <cmath>
#include <type_traits>

#include "target.h"

namespace ea {

// -1 in the first `count` lanes, else 0.
inline Integers<float> first_lanes(int64_t count) {
  static const int32_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load<Integers<float>>(numbers) < static_cast<int32_t>(count);
}

// exp(x) for x <= 0, to the last bits: x = n log(2) + r, exp(r) by its Taylor polynomial.
inline Vector<float> exponential(Vector<float> x) {
  const Vector<float> lowest = Vector<float>{} - 87.0f;
  x = x < lowest ? lowest : x;
  const float round = 12582912.0f;  // 1.5 * 2^23: adding it drops the fraction
  const Vector<float> n = (x * 1.44269504088896341f + round) - round;
  const Vector<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector<float> sum = r * (1.0f / 5040) + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const auto exponent = (__builtin_convertvector(n, Integers<float>) + 127) << 23;
  return sum * load<Vector<float>>(&exponent);
}
inline Vector<double> exponential(Vector<double> x) {
  for (int lane = 0; lane < lanes<double>; ++lane) x[lane] = std::exp(x[lane]);
  return x;
}

// Folds a vector's lanes in halves: their sum, their largest.
template <typename T, int bytes, typename Fold>
inline T fold(const T* values, Fold both) {
  if constexpr (bytes == 16) {
    T result = values[0];
    for (size_t lane = 1; lane < 16 / sizeof(T); ++lane) result = both(result, values[lane]);
    return result;
  } else {
    typedef T half __attribute__((vector_size(bytes / 2)));
    const half folded = both(load<half>(values), load<half>(values + bytes / 2 / sizeof(T)));
    return fold<T, bytes / 2>(reinterpret_cast<const T*>(&folded), both);
  }
}
// A vector's halves added up until there are but so many bytes.
template <typename T, int bytes>
inline typename Square<T>::Row sixteen_bytes(const T* values) {
  if constexpr (bytes == 16) {
    return load<typename Square<T>::Row>(values);
  } else {
    typedef T half __attribute__((vector_size(bytes / 2)));
    const half sum = load<half>(values) + load<half>(values + bytes / 2 / sizeof(T));
    return sixteen_bytes<T, bytes / 2>(reinterpret_cast<const T*>(&sum));
  }
}
template <typename T>
inline T total(Vector<T> vector) {
  return fold<T, vector_bytes>(reinterpret_cast<const T*>(&vector),
                               [](auto a, auto b) { return a + b; });
}
template <typename T>
inline T largest(Vector<T> vector) {
  return fold<T, vector_bytes>(reinterpret_cast<const T*>(&vector),
                               [](auto a, auto b) { return a > b ? a : b; });
}

// to[i] = total(vectors[i]), to the bit, of a few at once.
template <typename T>
inline void totals(const Vector<T>* vectors, T* to) {
  Square<T> square;
  for (int64_t i = 0; i < Square<T>::side; ++i)
    square.rows[i] = sixteen_bytes<T, vector_bytes>(reinterpret_cast<const T*>(vectors + i));
  square.turn();
  auto sum = square.rows[0];
  for (int64_t i = 1; i < Square<T>::side; ++i) sum += square.rows[i];
  store(to, sum);
}

inline int64_t whole_vectors(int64_t length, int64_t lane_count) {
  return (length + lane_count - 1) / lane_count * lane_count;
}

// block(count, at) for begin..end, `step` apart: `most` of them at once, then those that are left;
// the count is a constant, as a type.
template <int most, typename Block>
inline void each_block(int64_t begin, int64_t end, int64_t step, Block block) {
  for (; begin + most * step <= end; begin += most * step)
    block(std::integral_constant<int, most>{}, begin);
  if constexpr (most > 1)
    if (begin < end) each_block<most - 1>(begin, end, step, block);
}

}  // namespace ea
