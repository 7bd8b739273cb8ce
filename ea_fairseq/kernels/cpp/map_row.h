// One new row of the maps of all heads: what evolving attention does to logits.
//
// Same equations as EvolvingLogits.step and MapConvolution.step in ea_fairseq/attention/variants.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "vectors.h"

extern "C" {

// Of an attention's transform; see transformer_parts.py.
struct MapWeights {
  const float *kernel, *bias;  // (heads out, heads in, size, size), (heads); null: no convolution
  int64_t size, right;         // of the kernel; how far its result moves along the keys
  int64_t carries;             // whether the layer below's maps are mixed in
  double alpha, beta;
};
}

namespace ea {

// The numbers of each head, `line` apart; at least `border` zeros lie in front of each and behind.
struct HeadLines {
  static constexpr int64_t border = 16;  // whole vectors of any width
  const float* first;
  int64_t line;
};

class MapRow {
 public:
  const bool convolves, carries;

  MapRow(const MapWeights& w, int64_t heads)
      : convolves(w.kernel), carries(w.carries), heads(heads), size(w.kernel ? w.size : 1),
        reach((size - 1) / 2), right(w.right), alpha(w.alpha), beta(w.beta) {
    if (!convolves) return;
    if (size - 1 > HeadLines::border) throw std::invalid_argument("a kernel of more than 17");
    bias.assign(w.bias, w.bias + heads);
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < size; ++j)
        for (int64_t in = 0; in < heads; ++in)
          for (int64_t out = 0; out < heads; ++out)
            taps.push_back(w.kernel[((out * heads + in) * size + i) * size + j]);
  }

  // How many rows beside its own it reads: earlier ones in a decoder; in an encoder half of them
  // are later ones.
  int64_t others() const { return convolves ? size - 1 : 0; }

  // A_in = alpha * carry + (1 - alpha) * logits, in place; `columns` of one head.
  void mix(const float* carry, float* logits, int64_t columns) const {
    for (int64_t x = 0; x < columns; x += lanes<float>) {
      const auto values = load<Vector<float>>(logits + x);
      const auto mixed = values + alpha * (load<Vector<float>>(carry + x) - values);
      store(logits + x, first_lanes(columns - x) ? mixed : Vector<float>{});
    }
  }

  // Z = beta * relu(conv(A_in)) + (1 - beta) * A_in; A_in itself where there is no convolution.
  //
  // rows: A_in of the rows that the kernel reads, by its own rows; `first` is null where there is
  // none. mixed: A_in of this row. carry: where Z is wanted if the layer above has a use for it,
  // `line` numbers a head. What is behind a line's `columns` is not 0.
  HeadLines evolve(const HeadLines* rows, HeadLines mixed, int64_t columns, float* carry,
                   int64_t line) const {
    if (!convolves && !carries) return mixed;
    if (!convolves) {
      for (int64_t h = 0; h < heads; ++h)
        std::copy_n(mixed.first + h * mixed.line, whole_vectors(columns, lanes<float>),
                    carry + h * line);
      return {carry, line};
    }
    int64_t out = 0;
    for (; out + 4 <= heads; out += 4) evolve_heads<4>(rows, mixed, columns, out, carry, line);
    for (; out < heads; ++out) evolve_heads<1>(rows, mixed, columns, out, carry, line);
    return {carry, line};
  }

 private:
  const int64_t heads, size, reach, right;
  const float alpha, beta;
  std::vector<float> taps, bias;  // taps[row][column][in][out]

  template <int outs>
  void evolve_heads(const HeadLines* rows, HeadLines mixed, int64_t columns, int64_t out,
                    float* evolved, int64_t line) const {
    // The convolution's result moves down by `reach` rows and right: what it leaves behind is 0.
    const bool is_vacated = rows[reach].first == nullptr;
    const auto block = [&](auto count, int64_t begin) {
      constexpr int blocks = decltype(count)::value;
      Vector<float> sums[outs][blocks] = {};
      if (!is_vacated) convolve<outs, blocks>(rows, begin, out, sums);
      for (int o = 0; o < outs; ++o) {
        for (int b = 0; b < blocks; ++b) {
          const int64_t x = begin + b * lanes<float>;
          Vector<float> term = sums[o][b];
          if (x < right) term = first_lanes(right - x) ? Vector<float>{} : term;
          const auto values = load<Vector<float>>(mixed.first + (out + o) * mixed.line + x);
          store(evolved + (out + o) * line + x, values + beta * (term - values));
        }
      }
    };
    each_block<convolved_vectors>(0, whole_vectors(columns, lanes<float>), lanes<float>, block);
  }

  // relu(conv(A_in)) of the columns from x on.
  template <int outs, int blocks>
  void convolve(const HeadLines* rows, int64_t x, int64_t out,
                Vector<float> (&sums)[outs][blocks]) const {
    for (int o = 0; o < outs; ++o)
      for (int b = 0; b < blocks; ++b) sums[o][b] = Vector<float>{} + bias[out + o];
    const bool is_triangular = right > 0;  // the decoder's kernel is 0 above its diagonal
    for (int64_t i = 0; i < size; ++i) {
      if (!rows[i].first) continue;
      for (int64_t j = 0; j < (is_triangular ? i + 1 : size); ++j) {
        const float* from = rows[i].first + x - right - reach + j;
        const float* tap = taps.data() + (i * size + j) * heads * heads + out;
        for (int64_t in = 0; in < heads; ++in, from += rows[i].line, tap += heads) {
          Vector<float> values[blocks];
          for (int b = 0; b < blocks; ++b)
            values[b] = load<Vector<float>>(from + b * lanes<float>);
          for (int o = 0; o < outs; ++o)
            for (int b = 0; b < blocks; ++b) sums[o][b] += values[b] * tap[o];
        }
      }
    }
    for (auto& head : sums)
      for (Vector<float>& sum : head) sum = sum < 0.0f ? Vector<float>{} : sum;
  }
};

}  // namespace ea
