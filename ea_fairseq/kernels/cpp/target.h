// What differs from one instruction set to the next, all of it: how wide a vector is, how much fits
// the registers, vectors in part, and products of bytes. EA_FAIRSEQ_MARCH chooses (build.py).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ea {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, registers = 32;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32, registers = 16;
#elif defined(__aarch64__)
constexpr int vector_bytes = 16, registers = 32;
#else
constexpr int vector_bytes = 16, registers = 16;
#endif

// Vectors of a map's row that a convolution adds up together, for four heads each. Narrow vectors
// take more of them: fewer loads for each product.
constexpr int convolved_vectors = vector_bytes == 64 ? 2 : 3;

// Rows of a matrix product that are added up together, so many vectors of each: with as many of the
// other operand and a number of this one they fill the registers.
constexpr int rows_together(int vectors) {
  const int rows = (registers - 1 - vectors) / vectors;
  return rows < 6 ? rows : 6;
}

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

// ---- The first `count` of a vector's lanes; the others are 0, and are left alone in memory.

#if defined(__AVX512F__)

inline Vector<float> load_part(const float* from, int64_t count) {
  return (Vector<float>)_mm512_maskz_loadu_ps((1u << count) - 1, from);
}
inline Vector<double> load_part(const double* from, int64_t count) {
  return (Vector<double>)_mm512_maskz_loadu_pd((1u << count) - 1, from);
}
inline void store_part(float* to, Vector<float> vector, int64_t count) {
  _mm512_mask_storeu_ps(to, (1u << count) - 1, (__m512)vector);
}
inline void store_part(double* to, Vector<double> vector, int64_t count) {
  _mm512_mask_storeu_pd(to, (1u << count) - 1, (__m512d)vector);
}

#elif defined(__AVX2__)

// -1 in the first `count` lanes.
template <typename T>
inline __m256i mask_of_first(int64_t count) {
  typedef typename Lanes<T>::integer integer;
  alignas(32) static const integer ones_then_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  const integer* from = ones_then_zeros + 8 - count;
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline Vector<float> load_part(const float* from, int64_t count) {
  if (count >= lanes<float>) return load<Vector<float>>(from);
  return (Vector<float>)_mm256_maskload_ps(from, mask_of_first<float>(count));
}
inline Vector<double> load_part(const double* from, int64_t count) {
  if (count >= lanes<double>) return load<Vector<double>>(from);
  return (Vector<double>)_mm256_maskload_pd(from, mask_of_first<double>(count));
}
inline void store_part(float* to, Vector<float> vector, int64_t count) {
  if (count >= lanes<float>) return store(to, vector);
  _mm256_maskstore_ps(to, mask_of_first<float>(count), (__m256)vector);
}
inline void store_part(double* to, Vector<double> vector, int64_t count) {
  if (count >= lanes<double>) return store(to, vector);
  _mm256_maskstore_pd(to, mask_of_first<double>(count), (__m256d)vector);
}

#else

template <typename T>
inline Vector<T> load_part(const T* from, int64_t count) {
  if (count >= lanes<T>) return load<Vector<T>>(from);
  Vector<T> vector = {};
  for (int64_t lane = 0; lane < count; ++lane) vector[lane] = from[lane];
  return vector;
}
template <typename T>
inline void store_part(T* to, Vector<T> vector, int64_t count) {
  if (count >= lanes<T>) return store(to, vector);
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = vector[lane];
}

#endif

// ---- Rows become columns

// As many rows of 16 bytes as each has numbers.
template <typename T>
struct Square {
  static constexpr int64_t side = 16 / sizeof(T);
  typedef T Row __attribute__((vector_size(16)));
  Row rows[side];

  void turn() {
#if defined(__SSE2__)
    if constexpr (side == 4) {
      _MM_TRANSPOSE4_PS((__m128&)rows[0], (__m128&)rows[1], (__m128&)rows[2], (__m128&)rows[3]);
      return;
    }
#endif
    for (int64_t i = 0; i < side; ++i)
      for (int64_t j = 0; j < i; ++j) {
        const T number = rows[i][j];
        rows[i][j] = rows[j][i], rows[j][i] = number;
      }
  }
};

// ---- Products of bytes

// Four signed bytes in each lane, to be multiplied by four unsigned ones and added up: exact
// integers, whatever the processor makes of them.
class ByteProducts {
 public:
#if defined(__AVX512VNNI__)

  explicit ByteProducts(Integers<float> weights) : weights_(weights) {}
  Integers<float> add_to(Integers<float> sums, int32_t four) const {
    return (Integers<float>)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(four),
                                                (__m512i)weights_);
  }

 private:
  Integers<float> weights_;

#elif defined(__SSE2__)

  // As 16-bit numbers, of which two products and their sum are one instruction. That of unsigned by
  // signed bytes would be half the work, but cuts sums off at 32,767.
  explicit ByteProducts(Integers<float> weights)
      : even_(((Shorts)weights << 8) >> 8), odd_((Shorts)weights >> 8) {}
  Integers<float> add_to(Integers<float> sums, int32_t four) const {
    const auto bytes = (Shorts)(Integers<float>{} + four);
    return sums + pairs(even_, bytes & 255) + pairs(odd_, (Shorts)((UnsignedShorts)bytes >> 8));
  }

 private:
  typedef int16_t Shorts __attribute__((vector_size(vector_bytes)));
  typedef uint16_t UnsignedShorts __attribute__((vector_size(vector_bytes)));
  Shorts even_, odd_;

  static Integers<float> pairs(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
    return (Integers<float>)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Integers<float>)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return (Integers<float>)_mm_madd_epi16((__m128i)a, (__m128i)b);
#endif
  }

#else

  explicit ByteProducts(Integers<float> weights) : weights_(weights) {}
  Integers<float> add_to(Integers<float> sums, int32_t four) const {
    for (int bits = 0; bits < 32; bits += 8)
      sums += ((weights_ << (24 - bits)) >> 24) * ((four >> bits) & 255);
    return sums;
  }

 private:
  Integers<float> weights_;

#endif
};

// Whether any lane is above a limit is asked for every vector of logits; without an instruction
// for it, it takes as long as finding the largest.
inline bool any_above(Vector<float> vector, float limit) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)vector, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)(vector > limit)) != 0;
#elif defined(__SSE2__)
  return _mm_movemask_ps((__m128)(vector > limit)) != 0;
#else
  int32_t any = 0;
  for (int64_t lane = 0; lane < lanes<float>; ++lane) any |= vector[lane] > limit;
  return any != 0;
#endif
}

}  // namespace ea
