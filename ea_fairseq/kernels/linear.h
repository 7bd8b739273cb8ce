// Linear layers and layer norms over rows of float32.
#pragma once

#include <algorithm>

#include "buffer.h"

extern "C" {

// torch's nn.Linear: weight (columns, steps), bias (columns) or null.
struct LinearWeights {
  const float *weight, *bias;
  int64_t columns, steps;
};

// torch's nn.LayerNorm; without weight there is none.
struct NormWeights {
  const float *weight, *bias;
  double eps;
};
}

namespace ea {

// out[r] = in[r] W^T + bias, W packed once: panels of a few whole vectors of columns, which stay in
// the nearest cache while all rows pass by. How rows are grouped never changes a sum's order, so
// that a row's result does not depend on its neighbours.
class Linear {
 public:
  // Columns of a panel.
#ifdef __AVX512F__
  static constexpr int vectors = 2;
#else
  static constexpr int vectors = 1;  // whose sums fill sixteen registers of half the width
#endif
  static constexpr int64_t panel = vectors * lanes<float>;

  explicit Linear(const LinearWeights& w, float factor = 1.0f)
      : columns_(w.columns), steps_(w.steps), packed_(whole_vectors(w.columns, panel) * w.steps),
        bias_(whole_vectors(w.columns, panel)) {
    for (int64_t x = 0; x < whole_vectors(columns_, panel); ++x) {
      const bool there = x < columns_;
      bias_.data()[x] = there && w.bias ? factor * w.bias[x] : 0.0f;
      float* to = packed_.data() + x / panel * panel * steps_ + x % panel;
      for (int64_t j = 0; j < steps_; ++j) to[j * panel] = there ? factor * w.weight[x * steps_ + j] : 0.0f;
    }
  }

  int64_t columns() const { return columns_; }
  int64_t steps() const { return steps_; }

  // Rows that one after the other are `in_row` and `out_row` numbers apart.
  struct Rows {
    const float* in;
    int64_t in_row;
    int64_t count;
    float* out;
    int64_t out_row;
    const float* added = nullptr;  // to the result, as far apart as out's; may be out itself
    bool relu = false;
  };
  void operator()(const Rows& rows) const { columns(rows, 0, columns_); }

  // Columns `first`, a multiple of `panel`, to `last` alone: out's first is column `first`.
  void columns(const Rows& rows, int64_t first, int64_t last) const {
    for (int64_t x = first; x < last; x += panel) {
      const int64_t width = std::min(panel, last - x);
      int64_t r = 0;
      for (; r + 6 <= rows.count; r += 6) tile<6>(rows, r, x, x - first, width);
      switch (rows.count - r) {
        case 5: tile<5>(rows, r, x, x - first, width); break;
        case 4: tile<4>(rows, r, x, x - first, width); break;
        case 3: tile<3>(rows, r, x, x - first, width); break;
        case 2: tile<2>(rows, r, x, x - first, width); break;
        case 1: tile<1>(rows, r, x, x - first, width); break;
      }
    }
  }

 private:
  int64_t columns_, steps_;
  Buffer<float> packed_, bias_;

  template <int count>
  void tile(const Rows& rows, int64_t r, int64_t x, int64_t out_x, int64_t width) const {
    Vector<float> sums[count][vectors];
    for (int i = 0; i < count; ++i)
      for (int v = 0; v < vectors; ++v)
        sums[i][v] = load<Vector<float>>(bias_.data() + x + v * lanes<float>);
    const float* in = rows.in + r * rows.in_row;
    const float* from = packed_.data() + x * steps_;
    for (int64_t j = 0; j < steps_; ++j, from += panel) {
      Vector<float> values[vectors];
      for (int v = 0; v < vectors; ++v) values[v] = load<Vector<float>>(from + v * lanes<float>);
      for (int i = 0; i < count; ++i)
        for (int v = 0; v < vectors; ++v) sums[i][v] += values[v] * in[i * rows.in_row + j];
    }
    for (int i = 0; i < count; ++i) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t place = (r + i) * rows.out_row + out_x + v * lanes<float>;
        const int64_t part = std::clamp<int64_t>(width - v * lanes<float>, 0, lanes<float>);
        if (part == 0) break;
        Vector<float> sum = sums[i][v];
        if (rows.added) sum += load_part<Vector<float>>(rows.added + place, part);
        if (rows.relu) sum = sum < 0.0f ? Vector<float>{} : sum;
        store_part(rows.out + place, sum, part);
      }
    }
  }
};

// (x - mean) / sqrt(variance + eps) * weight + bias, for each row.
class LayerNorm {
 public:
  LayerNorm(const NormWeights& w, int64_t width) : width_(width), eps_(w.eps), is_there(w.weight) {
    if (!is_there) return;
    weight_.reserve(width);
    bias_.reserve(width);
    std::copy_n(w.weight, width, weight_.data());
    if (w.bias) std::copy_n(w.bias, width, bias_.data());
    else std::fill_n(bias_.data(), width, 0.0f);
  }

  // To `out`, which may be `in`; a copy where there is no norm.
  void operator()(const float* in, int64_t rows, float* out) const {
    for (int64_t r = 0; r < rows; ++r, in += width_, out += width_) {
      if (is_there) row(in, out);
      else if (in != out) std::copy_n(in, width_, out);
    }
  }

 private:
  int64_t width_;
  double eps_;
  Buffer<float> weight_, bias_;

  int64_t rest(int64_t x) const { return std::min(lanes<float>, width_ - x); }

  void row(const float* in, float* out) const {
    Vector<float> sums = {}, squares = {};
    for (int64_t x = 0; x < width_; x += lanes<float>)
      sums += load_part<Vector<float>>(in + x, rest(x));
    const float mean = total<float>(sums) / width_;
    for (int64_t x = 0; x < width_; x += lanes<float>) {
      const Vector<float> value = load_part<Vector<float>>(in + x, rest(x)) - mean;
      squares += first_lanes(rest(x)) ? value * value : Vector<float>{};
    }
    const float scale = 1 / std::sqrt(total<float>(squares) / width_ + static_cast<float>(eps_));
    for (int64_t x = 0; x < width_; x += lanes<float>) {
      const Vector<float> value = (load_part<Vector<float>>(in + x, rest(x)) - mean) * scale;
      const auto weight = load<Vector<float>>(weight_.data() + x);
      store_part(out + x, value * weight + load<Vector<float>>(bias_.data() + x), rest(x));
    }
  }

 public:
  const bool is_there;
};

}  // namespace ea
