// Linear layers, in float32 or with int8 products, and layer norms over rows of float32.
#pragma once

#include <algorithm>

#include "int8.h"

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

// What linear layers read: rows, `row` numbers apart; for layers of int8 as bytes too.
class Input {
 public:
  void set(const float* in, int64_t in_row, int64_t rows, int64_t steps, bool int8) {
    data = in, row = in_row, count = rows;
    if (int8) bytes.quantize(in, in_row, rows, steps);
  }

  const float* data;
  int64_t row, count;
  QuantizedRows bytes;
};

// out[r] = in[r] W^T + bias, W packed once: panels of a few whole vectors of columns, which stay in
// the nearest cache while all rows pass by. How rows are grouped never changes a sum's order, so
// that a row's result does not depend on its neighbours.
//
// With int8, a column of W is bytes of -127 to 127 times a scale of its own, products of bytes are
// added up as integers, and the rest is float32.
class Linear {
 public:
  // Columns of a panel.
  static constexpr int vectors = 2;
  static constexpr int64_t panel = vectors * lanes<float>;

  Linear(const LinearWeights& w, bool int8, float factor = 1.0f)
      : columns_(w.columns), steps_(w.steps), int8_(int8),
        bias_(whole_vectors(w.columns, panel)) {
    const int64_t wide = whole_vectors(columns_, panel);
    if (int8) {
      bytes_.reserve(wide * fours() * 4);
      std::fill_n(bytes_.data(), wide * fours() * 4, 0);
      scales_.reserve(wide);
      offsets_.reserve(wide);
    } else {
      packed_.reserve(wide * steps_);
    }
    for (int64_t x = 0; x < wide; ++x) {
      const float* weight = x < columns_ ? w.weight + x * steps_ : nullptr;
      bias_.data()[x] = weight && w.bias ? factor * w.bias[x] : 0.0f;
      if (int8) pack_bytes(weight, factor, x);
      else pack(weight, factor, x);
    }
  }

  int64_t columns() const { return columns_; }
  int64_t steps() const { return steps_; }

  // Rows `row` numbers apart.
  struct Output {
    float* data;
    int64_t row;
    const float* added = nullptr;  // to the result, as far apart; may be the output itself
    bool relu = false;
  };
  void operator()(const Input& in, const Output& out) const { columns(in, out, 0, columns_); }

  // Columns `first`, a multiple of `panel`, to `last` alone: out's first is column `first`.
  void columns(const Input& in, const Output& out, int64_t first, int64_t last) const {
    for (int64_t x = first; x < last; x += panel) {
      const auto rows = [&](auto count, int64_t r) {
        tile<decltype(count)::value>(in, out, r, x, first, last);
      };
      each_block<rows_together(vectors)>(0, in.count, 1, rows);
    }
  }

 private:
  int64_t columns_, steps_;
  bool int8_;
  Buffer<float> packed_, bias_;  // packed_[panel][step][column]
  Buffer<int8_t> bytes_;         // [panel][four steps][column][step]
  Buffer<float> scales_;         // of columns
  Buffer<int32_t> offsets_;      // what a row's zeros, which are no zero bytes, add to columns

  int64_t fours() const { return (steps_ + 3) / 4; }

  void pack(const float* weight, float factor, int64_t x) {
    float* to = packed_.data() + x / panel * panel * steps_ + x % panel;
    for (int64_t j = 0; j < steps_; ++j) to[j * panel] = weight ? factor * weight[j] : 0.0f;
  }
  void pack_bytes(const float* weight, float factor, int64_t x) {
    float most = 0, nothing = 0;
    for (int64_t j = 0; weight && j < steps_; ++j) {
      most = std::max(most, std::abs(weight[j]));
      nothing += weight[j] - weight[j];
    }
    most += nothing;  // no number where one of the column's is none
    int8_t* to = bytes_.data() + (x / panel * panel * fours() + x % panel) * 4;
    int32_t sum = 0;
    for (int64_t j = 0; most > 0 && j < steps_; ++j) {
      const int number = std::lrint(weight[j] * 127 / most);
      to[j / 4 * panel * 4 + j % 4] = number;
      sum += number;
    }
    scales_.data()[x] = factor * most / 127;
    offsets_.data()[x] = QuantizedRows::zero * sum;
  }

  template <int count>
  void tile(const Input& in, const Output& out, int64_t r, int64_t x, int64_t first,
            int64_t last) const {
    Vector<float> sums[count][vectors];
    if (int8_) add_bytes<count>(in, r, x, sums);
    else add<count>(in, r, x, sums);
    for (int i = 0; i < count; ++i) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t column = x + v * lanes<float>, part = std::min(lanes<float>, last - column);
        if (part <= 0) break;
        const int64_t place = (r + i) * out.row + column - first;
        Vector<float> sum = sums[i][v];
        if (out.added) sum += load_part(out.added + place, part);
        if (out.relu) sum = sum < 0.0f ? Vector<float>{} : sum;
        store_part(out.data + place, sum, part);
      }
    }
  }

  template <int count>
  void add(const Input& in, int64_t r, int64_t x, Vector<float> (&sums)[count][vectors]) const {
    for (int i = 0; i < count; ++i)
      for (int v = 0; v < vectors; ++v)
        sums[i][v] = load<Vector<float>>(bias_.data() + x + v * lanes<float>);
    const float* row = in.data + r * in.row;
    const float* from = packed_.data() + x * steps_;
    for (int64_t j = 0; j < steps_; ++j, from += panel) {
      Vector<float> values[vectors];
      for (int v = 0; v < vectors; ++v) values[v] = load<Vector<float>>(from + v * lanes<float>);
      for (int i = 0; i < count; ++i)
        for (int v = 0; v < vectors; ++v) sums[i][v] += values[v] * row[i * in.row + j];
    }
  }

  template <int count>
  void add_bytes(
      const Input& in, int64_t r, int64_t x, Vector<float> (&sums)[count][vectors]) const {
    Integers<float> products[count][vectors] = {};
    const int8_t* from = bytes_.data() + x * fours() * 4;
    for (int64_t j = 0; j < fours(); ++j, from += panel * 4) {
      const ByteProducts weights[vectors] = {
          ByteProducts(load<Integers<float>>(from)),
          ByteProducts(load<Integers<float>>(from + vector_bytes)),
      };
      for (int i = 0; i < count; ++i) {
        const int32_t four = in.bytes.four(r + i, 4 * j);
        for (int v = 0; v < vectors; ++v)
          products[i][v] = weights[v].add_to(products[i][v], four);
      }
    }
    for (int v = 0; v < vectors; ++v) {
      const int64_t column = x + v * lanes<float>;
      const auto offset = load<Integers<float>>(offsets_.data() + column);
      const auto scale = load<Vector<float>>(scales_.data() + column);
      const auto bias = load<Vector<float>>(bias_.data() + column);
      for (int i = 0; i < count; ++i) {
        const auto sum = __builtin_convertvector(products[i][v] - offset, Vector<float>);
        sums[i][v] = sum * (scale * in.bytes.scale(r + i)) + bias;
      }
    }
  }
};

// (x - mean) / sqrt(variance + eps) * weight + bias, for each row.
class LayerNorm {
 public:
  LayerNorm(const NormWeights& w, int64_t width)
      : width_(width), eps_(w.eps), is_there_(w.weight) {
    if (!is_there_) return;
    weight_.reserve(width);
    bias_.reserve(width);
    std::copy_n(w.weight, width, weight_.data());
    if (w.bias) std::copy_n(w.bias, width, bias_.data());
    else std::fill_n(bias_.data(), width, 0.0f);
  }

  // To `out`, which may be `in`; a copy where there is no norm.
  void operator()(const float* in, int64_t rows, float* out) const {
    for (int64_t r = 0; r < rows; ++r, in += width_, out += width_) {
      if (is_there_) row(in, out);
      else if (in != out) std::copy_n(in, width_, out);
    }
  }

 private:
  int64_t width_;
  double eps_;
  bool is_there_;
  Buffer<float> weight_, bias_;

  int64_t rest(int64_t x) const { return std::min(lanes<float>, width_ - x); }

  void row(const float* in, float* out) const {
    Vector<float> sums = {}, squares = {};
    for (int64_t x = 0; x < width_; x += lanes<float>)
      sums += load_part(in + x, rest(x));
    const float mean = total<float>(sums) / width_;
    for (int64_t x = 0; x < width_; x += lanes<float>) {
      const Vector<float> value = load_part(in + x, rest(x)) - mean;
      squares += first_lanes(rest(x)) ? value * value : Vector<float>{};
    }
    const float scale = 1 / std::sqrt(total<float>(squares) / width_ + static_cast<float>(eps_));
    for (int64_t x = 0; x < width_; x += lanes<float>) {
      const Vector<float> value = (load_part(in + x, rest(x)) - mean) * scale;
      const auto weight = load<Vector<float>>(weight_.data() + x);
      store_part(out + x, value * weight + load<Vector<float>>(bias_.data() + x), rest(x));
    }
  }
};

}  // namespace ea
