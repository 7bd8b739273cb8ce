// Layers of a Transformer, in float32.
#pragma once

#include <stdexcept>

#include "linear.h"
#include "lines.h"
#include "map_row.h"
#include "products.h"

extern "C" {

// What the Python side passes; see transformer_parts.py. Null pointers stand for what is absent.
struct AttentionWeights {
  LinearWeights queries, keys, values, output;
  NormWeights norm;
  MapWeights map;
};
struct NetworkWeights {
  LinearWeights first, second;
  NormWeights norm;
};
// Of a stack of layers. Words and positions are read where they are, not copied.
struct StackWeights {
  int64_t width, heads, norm_first;
  int64_t int8;                    // whether linear layers multiply bytes
  const float *words, *positions;  // (vocabulary, width), (longest, width) or null
  double scale;                    // of words
  NormWeights embedding_norm, final_norm;
};
}

namespace ea {

struct AttentionLayer {
  AttentionLayer(const AttentionWeights& w, int64_t heads, bool int8)
      : queries(w.queries, int8, std::sqrt(float(heads) / w.queries.columns)),
        keys(w.keys, int8), values(w.values, int8), output(w.output, int8),
        norm(w.norm, w.output.columns), map(w.map, heads) {}
  Linear queries, keys, values, output;
  LayerNorm norm;
  MapRow map;
};

struct NetworkLayer {
  NetworkLayer(const NetworkWeights& w, bool int8)
      : first(w.first, int8), second(w.second, int8), norm(w.norm, w.second.columns) {}
  Linear first, second;
  LayerNorm norm;
};

// What is around the layers of an encoder or a decoder.
class Stack {
 public:
  explicit Stack(const StackWeights& w)
      : width(w.width), heads(w.heads), head_dim(width / some(heads)), int8(w.int8),
        stride(whole_vectors(width - head_dim, lanes<float>) +
               whole_vectors(head_dim, lanes<float>)),
        final_norm(w.final_norm, width), w(w), embedding_norm(w.embedding_norm, width) {}

  const int64_t width, heads, head_dim;
  const bool int8;
  const int64_t stride;  // of keys or values, the last head's whole vectors included
  const LayerNorm final_norm;

  // A token at a position, without the norm.
  void embed(int64_t token, int64_t position, float* to) const {
    const float scale = w.scale;
    const float* word = w.words + token * width;
    const float* place = w.positions ? w.positions + position * width : nullptr;
    for (int64_t x = 0; x < width; ++x) to[x] = scale * word[x] + (place ? place[x] : 0.0f);
  }
  void norm_embedded(float* x, int64_t rows) const { embedding_norm(x, rows, x); }

  // Between layers: x, what goes into a linear layer, and a network's inner numbers.
  struct Flow {
    float* x;
    int64_t rows;
    Buffer<float> normed, hidden;
    Input in;
  };
  void set(Input& in, const float* data, int64_t row, int64_t rows) const {
    in.set(data, row, rows, row, int8);
  }

  // x + inner(x), with the norm in front or behind; inner() reads flow.in and adds to x.
  template <typename Inner>
  void residual(const LayerNorm& norm, Flow& flow, Inner inner) const {
    flow.normed.reserve(flow.rows * width);
    if (w.norm_first) norm(flow.x, flow.rows, flow.normed.data());
    set(flow.in, w.norm_first ? flow.normed.data() : flow.x, width, flow.rows);
    inner();
    if (!w.norm_first) norm(flow.x, flow.rows, flow.x);
  }

  // A linear layer's result added to x.
  void add(const Linear& layer, const float* data, int64_t row, Flow& flow) const {
    set(flow.in, data, row, flow.rows);
    layer(flow.in, {flow.x, width, flow.x});
  }

  // The feed-forward network with its residual.
  void network(const NetworkLayer& layer, Flow& flow) const {
    residual(layer.norm, flow, [&] {
      const int64_t inner = layer.first.columns();
      flow.hidden.reserve(flow.rows * inner);
      layer.first(flow.in, {flow.hidden.data(), inner, nullptr, true});
      add(layer.second, flow.hidden.data(), inner, flow);
    });
  }

 private:
  static int64_t some(int64_t heads) {
    if (heads < 1) throw std::invalid_argument("an attention needs one head or more");
    return heads;
  }

  const StackWeights w;
  const LayerNorm embedding_norm;
};

// Keys of one sentence by head, dimension and position; positions fill whole vectors.
inline void transpose_keys(const float* keys, int64_t length, int64_t width, float* to) {
  const int64_t wide = whole_vectors(length, lanes<float>);
  for (int64_t x = 0; x < width; ++x)
    for (int64_t i = 0; i < wide; ++i) to[x * wide + i] = i < length ? keys[i * width + x] : 0.0f;
}

// Attention of several rows to all positions of one sentence.
struct SentenceAttention {
  int64_t heads, head_dim, rows, columns;
  const float* queries;  // (rows, heads, head_dim), scaled
  const float* keys;     // of transpose_keys
  const float* values;   // (columns, value_row), the last head's whole vectors included
  int64_t value_row;
  float* mixed;          // A_in, `plane` numbers a row: zeros, then `line` numbers a head
  int64_t line, plane;
  float* carry;          // in and out: the maps for the layer above, (rows, heads, carry_line)
  float* probs;          // likewise
  int64_t carry_line;
  float* out;            // (rows, heads, head_dim)

  // find(n): A_in of what row n's map reads, for MapRow; as soon as all rows' A_in is there.
  template <typename Find>
  void run(const MapRow& map, bool is_first, Find find) const {
    const int64_t width = heads * head_dim, wide = whole_vectors(columns, lanes<float>);
    std::fill_n(mixed, rows * plane, 0.0f);
    float* logits = mixed + HeadLines::border;
    for (int64_t h = 0; h < heads; ++h)
      Product<float>{queries + h * head_dim, width, 1, keys + h * head_dim * wide, wide,
                     logits + h * line, plane, rows, head_dim, columns}.run();
    if (map.carries && !is_first)
      for (int64_t n = 0; n < rows; ++n)
        for (int64_t h = 0; h < heads; ++h)
          map.mix(carry + (n * heads + h) * carry_line, logits + n * plane + h * line, columns);
    for (int64_t n = 0; n < rows; ++n) {
      const HeadLines evolved = map.evolve(find(n), {logits + n * plane, line}, columns,
                                           carry + n * heads * carry_line, carry_line);
      for (int64_t h = 0; h < heads; ++h)
        softmax_line(evolved.first + h * evolved.line, columns,
                     probs + (n * heads + h) * carry_line);
    }
    for (int64_t h = 0; h < heads; ++h)
      Product<float>{probs + h * carry_line, heads * carry_line, 1, values + h * head_dim,
                     value_row, out + h * head_dim, width, rows, columns, head_dim}.run();
  }
};

}  // namespace ea
