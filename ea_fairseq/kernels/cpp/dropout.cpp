// Dropout and the addition to the residual in one pass, float and double.

#include <cstdint>

namespace {

template <typename T>
void add(const T* x, const T* residual, const int32_t* drawn, uint8_t* kept, T* sum, double scale,
         int64_t size, int64_t threads) {
  const T factor = static_cast<T>(scale);
#pragma omp parallel for simd schedule(static) num_threads(threads) if (parallel : threads > 1)
  for (int64_t i = 0; i < size; ++i) {
    kept[i] = static_cast<uint8_t>(drawn[i]);
    sum[i] = residual[i] + x[i] * (factor * static_cast<T>(drawn[i]));
  }
}

template <typename T>
void gradient(const T* grad, const uint8_t* kept, T* result, double scale, int64_t size,
              int64_t threads) {
  const T factor = static_cast<T>(scale);
#pragma omp parallel for simd schedule(static) num_threads(threads) if (parallel : threads > 1)
  for (int64_t i = 0; i < size; ++i) result[i] = grad[i] * (factor * static_cast<T>(kept[i]));
}

}  // namespace

extern "C" {

// They throw nothing; null, as where nothing went wrong elsewhere.

const char* dropout_add_float(const float* x, const float* residual, const int32_t* drawn,
                              uint8_t* kept, float* sum, double scale, int64_t size,
                              int64_t threads) {
  add(x, residual, drawn, kept, sum, scale, size, threads);
  return nullptr;
}
const char* dropout_add_double(const double* x, const double* residual, const int32_t* drawn,
                               uint8_t* kept, double* sum, double scale, int64_t size,
                               int64_t threads) {
  add(x, residual, drawn, kept, sum, scale, size, threads);
  return nullptr;
}
const char* dropout_gradient_float(const float* grad, const uint8_t* kept, float* result,
                                   double scale, int64_t size, int64_t threads) {
  gradient(grad, kept, result, scale, size, threads);
  return nullptr;
}
const char* dropout_gradient_double(const double* grad, const uint8_t* kept, double* result,
                                    double scale, int64_t size, int64_t threads) {
  gradient(grad, kept, result, scale, size, threads);
  return nullptr;
}
}
