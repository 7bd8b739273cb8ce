// A Transformer's encoder, whole, for a batch of sentences: with plain or evolving attention.
//
// Sentences lie one after the other, without padding.

#include <numeric>
#include <vector>

#include "layers.h"
#include "lines.h"

extern "C" {

// What the Python side passes; see fused_encoder.py. Null pointers stand for what is absent.
struct EncoderLayerWeights {
  AttentionWeights attention;
  NetworkWeights network;
};
struct EncoderWeights {
  StackWeights stack;
  const EncoderLayerWeights* layers;
  int64_t layer_count;
};
struct Encoding {
  int64_t sentences, threads;
  const int64_t *lengths, *tokens;
  float* out;  // (tokens, width)
};
}

namespace ea {

class Encoder : public Stack {
 public:
  struct Layer {
    Layer(const EncoderLayerWeights& w, int64_t heads, bool int8)
        : attention(w.attention, heads, int8), network(w.network, int8) {}
    AttentionLayer attention;
    NetworkLayer network;
  };

  explicit Encoder(const EncoderWeights& w) : Stack(w.stack) {
    for (int64_t i = 0; i < w.layer_count; ++i) layers.emplace_back(w.layers[i], heads, int8);
  }

  void run(const Encoding& batch) const {
    std::vector<int64_t> firsts(batch.sentences + 1, 0);
    std::partial_sum(batch.lengths, batch.lengths + batch.sentences, firsts.begin() + 1);
    const std::vector<int64_t> begins = blocks_of(firsts, batch.threads);
    const int64_t count = begins.size() - 1;
    each_share(count, std::min(batch.threads, count), [&](int64_t, int64_t begin, int64_t end) {
      Scratch scratch;
      for (int64_t b = begin; b < end; ++b)
        Block(*this, batch, firsts, begins[b], begins[b + 1], scratch).run();
    });
  }

 private:
  static constexpr int64_t block = 96;  // tokens that go through all layers together

  struct Scratch {
    Flow flow;
    Buffer<float> queries, keys, values, context, transposed, mixed, carry, probs;
  };
  class Block;

  std::vector<Layer> layers;

  // Sentences with which blocks begin, and the end.
  static std::vector<int64_t> blocks_of(const std::vector<int64_t>& firsts, int64_t threads) {
    const int64_t total = firsts.back(), sentences = firsts.size() - 1;
    const int64_t count = std::max((total + block - 1) / block, threads);
    std::vector<int64_t> begins = {0};
    for (int64_t n = 1; n <= sentences; ++n)
      if (n == sentences || firsts[n] * count >= total * int64_t(begins.size()))
        begins.push_back(n);
    return begins;
  }

  // Some sentences, from tokens to the last layer's output.
  class Block {
   public:
    Block(const Encoder& encoder, const Encoding& batch, const std::vector<int64_t>& firsts,
          int64_t begin, int64_t end, Scratch& scratch)
        : e(encoder), batch(batch), firsts(firsts), begin(begin), end(end), first(firsts[begin]),
          rows(firsts[end] - first), s(scratch) {
      for (Buffer<float>* buffer : {&s.queries, &s.keys, &s.context})
        buffer->reserve(rows * e.width);
      s.values.reserve(rows * e.stride);
      carries.push_back(0);
      for (int64_t n = begin; n < end; ++n)
        carries.push_back(carries.back() + batch.lengths[n] * e.heads * wide(n));
      s.carry.reserve(carries.back());
      int64_t longest = begin;
      for (int64_t n = begin; n < end; ++n)
        if (batch.lengths[n] > batch.lengths[longest]) longest = n;
      s.transposed.reserve(e.width * wide(longest));
      s.probs.reserve(batch.lengths[longest] * e.heads * wide(longest));
      s.mixed.reserve(batch.lengths[longest] * plane(longest));
    }

    void run() {
      float* x = batch.out + first * e.width;
      for (int64_t n = begin; n < end; ++n)
        for (int64_t i = 0; i < batch.lengths[n]; ++i) {
          const int64_t token = firsts[n] + i;
          e.embed(batch.tokens[token], i, batch.out + token * e.width);
        }
      e.norm_embedded(x, rows);
      Flow& flow = s.flow;
      flow.x = x, flow.rows = rows;
      for (size_t l = 0; l < e.layers.size(); ++l) {
        const AttentionLayer& attention = e.layers[l].attention;
        e.residual(attention.norm, flow, [&] {
          attention.queries(flow.in, {s.queries.data(), e.width});
          attention.keys(flow.in, {s.keys.data(), e.width});
          attention.values(flow.in, {s.values.data(), e.stride});
          for (int64_t n = begin; n < end; ++n) attend(attention.map, l == 0, n);
          e.add(attention.output, s.context.data(), e.width, flow);
        });
        e.network(e.layers[l].network, flow);
      }
      e.final_norm(x, rows, x);
    }

   private:
    const Encoder& e;
    const Encoding& batch;
    const std::vector<int64_t>& firsts;
    const int64_t begin, end;   // sentences
    const int64_t first, rows;  // tokens: the first, how many
    Scratch& s;
    std::vector<int64_t> carries;  // where each sentence's maps begin

    int64_t wide(int64_t n) const { return whole_vectors(batch.lengths[n], lanes<float>); }
    int64_t line(int64_t n) const { return HeadLines::border + wide(n); }
    int64_t plane(int64_t n) const { return e.heads * line(n) + HeadLines::border; }

    void attend(const MapRow& map, bool is_first, int64_t n) {
      const int64_t length = batch.lengths[n], at = firsts[n] - first;
      transpose_keys(s.keys.data() + at * e.width, length, e.width, s.transposed.data());
      std::vector<HeadLines> read(map.others() + 1);
      const int64_t reach = map.others() / 2;
      SentenceAttention{
          e.heads, e.head_dim, length, length,
          s.queries.data() + at * e.width, s.transposed.data(),
          s.values.data() + at * e.stride, e.stride,
          s.mixed.data(), line(n), plane(n),
          s.carry.data() + carries[n - begin], s.probs.data(), wide(n),
          s.context.data() + at * e.width,
      }.run(map, is_first, [&](int64_t t) {
        for (int64_t i = 0; i <= map.others(); ++i) {
          const int64_t row = t - reach + i;
          const float* lines = s.mixed.data() + row * plane(n) + HeadLines::border;
          read[i] = {row < 0 || row >= length ? nullptr : lines, line(n)};
        }
        return read.data();
      });
    }
  };
};

}  // namespace ea

extern "C" {

// Null, or what went wrong.

const char* encoder_new(const EncoderWeights* w, ea::Encoder** encoder) {
  return ea::message_of([&] { *encoder = new ea::Encoder(*w); });
}
const char* encoder_run(const ea::Encoder* encoder, const Encoding* batch) {
  return ea::message_of([&] { encoder->run(*batch); });
}
void encoder_free(ea::Encoder* encoder) { delete encoder; }
}
