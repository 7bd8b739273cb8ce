// Whole vectors of numbers, by the compiler's vector extension: any processor, one source.
#pragma once

#include <cstdint>
#include <cmath>
#include <cstring>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace ea {

constexpr int vector_bytes = 64;

template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float vector __attribute__((vector_size(vector_bytes)));
  typedef int32_t integers __attribute__((vector_size(vector_bytes)));
  typedef int32_t integer;
};
template <>
struct Lanes<double> {
  typedef double vector __attribute__((vector_size(vector_bytes)));
  typedef int64_t integers __attribute__((vector_size(vector_bytes)));
  typedef int64_t integer;
};
template <typename T>
using Vector = typename Lanes<T>::vector;
template <typename T>
using Integers = typename Lanes<T>::integers;
template <typename T>
constexpr int64_t lanes = vector_bytes / sizeof(T);

template <typename V, typename P>
inline V load(const P* from) {
  V vector;
  std::memcpy(&vector, from, sizeof(V));
  return vector;
}
template <typename V, typename P>
inline void store(P* to, V vector) {
  std::memcpy(to, &vector, sizeof(V));
}

// The first `count` of a vector's lanes; the others are 0, and are left alone in memory.
template <typename V, typename P>
inline V load_part(const P* from, int64_t count) {
  V vector = {};
  std::memcpy(&vector, from, count * sizeof(P));
  return vector;
}
template <typename V, typename P>
inline void store_part(P* to, V vector, int64_t count) {
  std::memcpy(to, &vector, count * sizeof(P));
}
#ifdef __AVX512F__
template <>
inline Vector<float> load_part(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps((1u << count) - 1, from);
}
template <>
inline void store_part(float* to, Vector<float> vector, int64_t count) {
  _mm512_mask_storeu_ps(to, (1u << count) - 1, vector);
}
#endif

// -1 in the first `count` lanes, else 0.
inline Integers<float> first_lanes(int64_t count) {
  const Integers<float> number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return number < static_cast<int32_t>(count);
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
  typedef T half __attribute__((vector_size(bytes / 2)));
  const half folded = both(load<half>(values), load<half>(values + bytes / 2 / sizeof(T)));
  if constexpr (bytes / 2 > 16) {
    return fold<T, bytes / 2>(reinterpret_cast<const T*>(&folded), both);
  } else {
    T result = folded[0];
    for (size_t lane = 1; lane < 16 / sizeof(T); ++lane) result = both(result, T(folded[lane]));
    return result;
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

// Whether any lane is above a limit.
inline bool any_above(Vector<float> vector, float limit) {
#ifdef __AVX512F__
  return _mm512_cmp_ps_mask(vector, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
#else
  return largest<float>(vector) > limit;
#endif
}

inline int64_t whole_vectors(int64_t length, int64_t lane_count) {
  return (length + lane_count - 1) / lane_count * lane_count;
}

}  // namespace ea
