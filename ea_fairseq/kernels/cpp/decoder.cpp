// A Transformer's decoder, whole, one token further for every hypothesis of a beam search: with
// plain or evolving attention.
//
// Nothing that was written is ever moved. A hypothesis knows the row of each of its earlier tokens;
// a beam that reorders changes these alone. Sources stay as long as they are, without padding.

#include <vector>

#include "layers.h"
#include "lines.h"
#include "top.h"

extern "C" {

// What the Python side passes; see fused_decoder.py. Null pointers stand for what is absent.
struct DecoderLayerWeights {
  AttentionWeights self, cross;
  NetworkWeights network;
};
struct DecoderWeights {
  StackWeights stack;
  const DecoderLayerWeights* layers;
  int64_t layer_count;
  LinearWeights output;
};

// What is translated: (positions, width), one sentence after the other.
struct Encoded {
  const float* data;
  int64_t sentences;
  const int64_t* lengths;
  int64_t threads;
};

// One step. Neighbouring rows may share a sentence; those that do are one after the other.
struct DecodingStep {
  int64_t rows, threads;
  const int64_t *tokens, *sentences;
  const int64_t* parents;  // row of each one's previous token in the step before; null in the first
  int64_t pad, eos, unk;   // tokens; padding is never chosen
  double unk_penalty;
  int64_t no_end;          // whether no hypothesis may end
  const uint8_t* last;     // bool, (rows): which must end
  int64_t most;
  float* best;             // out: (rows, most), log-probabilities, the best first
  int64_t* best_tokens;    // out: (rows, most)
};
}

namespace ea {

class Decoder : public Stack {
 public:
  struct Layer {
    Layer(const DecoderLayerWeights& w, int64_t heads, bool int8)
        : self(w.self, heads, int8), cross(w.cross, heads, int8), network(w.network, int8) {}
    AttentionLayer self, cross;
    NetworkLayer network;
  };

  explicit Decoder(const DecoderWeights& w) : Stack(w.stack), output(w.output, int8) {
    for (int64_t i = 0; i < w.layer_count; ++i) layers.emplace_back(w.layers[i], heads, int8);
    for (const Layer& layer : layers)
      earlier = std::max({earlier, layer.self.map.others(), layer.cross.map.others()});
  }

  std::vector<Layer> layers;
  Linear output;
  int64_t earlier = 0;  // rows of maps that a new one may read
};

// The search over one batch of sentences.
class Decoding {
 public:
  Decoding(const Decoder& decoder, const Encoded& encoded)
      : d(decoder), lengths(encoded.lengths, encoded.lengths + encoded.sentences),
        longest(*std::max_element(lengths.begin(), lengths.end())), recent(d.earlier + 1) {
    int64_t positions = 0, columns = 0;
    for (int64_t length : lengths) {
      first_position.push_back(positions);
      first_column.push_back(columns);
      positions += length;
      columns += whole_vectors(length, lanes<float>);
    }
    for (size_t i = 0; i < d.layers.size(); ++i)
      sources.push_back({Buffer<float>(columns * d.width), Buffer<float>(positions * d.stride)});
    each_share(encoded.sentences, std::min(encoded.threads, encoded.sentences),
               [&](int64_t, int64_t begin, int64_t end) { project(encoded, begin, end); });
  }

  void step(const DecodingStep& step);

 private:
  static constexpr int64_t block = 192;  // rows that go through all layers together
  static constexpr int64_t piece = 256;  // logits of a row at once, whole panels

  // Keys by head, dimension and position, values by position, of all sentences.
  struct Source {
    Buffer<float> keys, values;
  };
  // What one step wrote: keys and values by layer and row, `d.stride` numbers each.
  struct Time {
    Time(int64_t rows, int64_t numbers) : rows(rows), kept(numbers) {}
    int64_t rows;
    Buffer<float> kept;
  };
  // A_in of one step and kind of attention, by layer, row and head.
  struct Maps {
    int64_t rows, line, plane;  // numbers of a head, of a row
    Buffer<float> lines;

    void shape(const Decoder& d, int64_t row_count, int64_t columns) {
      rows = row_count;
      line = HeadLines::border + whole_vectors(columns, lanes<float>);
      plane = d.heads * line + HeadLines::border;
      lines.reserve(d.layers.size() * rows * plane);
    }
    float* row(int64_t layer, int64_t n) {
      return lines.data() + (layer * rows + n) * plane + HeadLines::border;
    }
    const float* row(int64_t layer, int64_t n) const {
      return const_cast<Maps*>(this)->row(layer, n);
    }
  };
  // Both kinds' of one step.
  struct Recent {
    Maps self, cross;
  };
  struct Scratch {
    Decoder::Flow flow;
    Buffer<float> x, queries, context, evolved, self_carry, cross_carry, padded, logits;
    std::vector<const float*> keys, values;
    std::vector<HeadLines> lines;
  };
  class Block;

  const Decoder& d;
  const std::vector<int64_t> lengths;
  const int64_t longest;
  std::vector<int64_t> first_position, first_column;  // of each sentence, among all
  std::vector<Source> sources;                        // by layer
  std::vector<Time> times;
  std::vector<Recent> recent;  // of the last steps; step t is at t % size
  std::vector<int32_t> rows_of, next_rows_of;  // (rows, steps): where each hypothesis's tokens are
  std::vector<Scratch> scratches;

  // Keys and values of sentences' encoded positions, for all layers.
  void project(const Encoded& encoded, int64_t begin, int64_t end) {
    const int64_t depth = d.layers[0].cross.keys.steps();
    Buffer<float> keys(longest * d.width);
    Input in;
    for (int64_t n = begin; n < end; ++n) {
      d.set(in, encoded.data + first_position[n] * depth, depth, lengths[n]);
      for (size_t l = 0; l < d.layers.size(); ++l) {
        const AttentionLayer& attention = d.layers[l].cross;
        attention.keys(in, {keys.data(), d.width});
        transpose_keys(keys.data(), lengths[n], d.width,
                       sources[l].keys.data() + first_column[n] * d.width);
        float* values = sources[l].values.data() + first_position[n] * d.stride;
        attention.values(in, {values, d.stride});
      }
    }
  }

  // Adds the last step's rows to the tables of those hypotheses that go on.
  void remember(const DecodingStep& step) {
    const int64_t steps = times.size();
    if (steps == 0) return;
    next_rows_of.resize(step.rows * steps);
    for (int64_t n = 0; n < step.rows; ++n) {
      int32_t* to = next_rows_of.data() + n * steps;
      const int32_t* from = rows_of.data() + step.parents[n] * (steps - 1);
      std::copy_n(from, steps - 1, to);
      to[steps - 1] = step.parents[n];
    }
    rows_of.swap(next_rows_of);
  }

  // Where blocks of rows begin, and the end: hypotheses of a sentence stay together.
  static std::vector<int64_t> blocks_of(const DecodingStep& step) {
    const int64_t share = (step.rows + step.threads - 1) / step.threads;
    const int64_t count = (share + block - 1) / block * step.threads;
    std::vector<int64_t> begins = {0};
    for (int64_t i = 1; i <= count; ++i) {
      int64_t end = step.rows * i / count;
      while (end > 0 && end < step.rows && step.sentences[end] == step.sentences[end - 1]) ++end;
      if (end > begins.back()) begins.push_back(end);
    }
    return begins;
  }
};

// One step of some rows, from tokens to the best next ones.
class Decoding::Block {
 public:
  Block(const Decoding& owner, const DecodingStep& step, Time& now, Recent& maps, int64_t begin,
        int64_t end, Scratch& scratch)
      : o(owner), d(owner.d), step(step), now(now), maps(maps), time(owner.times.size() - 1),
        begin(begin), rows(end - begin), s(scratch),
        carry_line(whole_vectors(std::max(time + 1, owner.longest), lanes<float>)) {
    for (Buffer<float>* buffer : {&s.x, &s.queries, &s.context})
      buffer->reserve(rows * d.width);
    for (Buffer<float>* buffer : {&s.self_carry, &s.cross_carry, &s.evolved})
      buffer->reserve(rows * d.heads * carry_line);
    s.padded.reserve(whole_vectors(d.head_dim, lanes<float>));
    std::fill_n(s.padded.data(), whole_vectors(d.head_dim, lanes<float>), 0.0f);
    s.logits.reserve(rows * piece);
    s.keys.resize(time + 1);
    s.values.resize(time + 1);
    s.lines.resize(d.earlier + 1);
  }

  void run() {
    float* x = s.x.data();
    for (int64_t n = 0; n < rows; ++n)
      d.embed(step.tokens[begin + n], time, x + n * d.width);
    d.norm_embedded(x, rows);
    Decoder::Flow& flow = s.flow;
    flow.x = x, flow.rows = rows;
    for (size_t l = 0; l < d.layers.size(); ++l) {
      const Decoder::Layer& layer = d.layers[l];
      d.residual(layer.self.norm, flow, [&] {
        self_attention(l);
        d.add(layer.self.output, s.context.data(), d.width, flow);
      });
      d.residual(layer.cross.norm, flow, [&] {
        cross_attention(l);
        d.add(layer.cross.output, s.context.data(), d.width, flow);
      });
      d.network(layer.network, flow);
    }
    d.final_norm(x, rows, x);
    choose();
  }

 private:
  const Decoding& o;
  const Decoder& d;
  const DecodingStep& step;
  Time& now;
  Recent& maps;
  const int64_t time, begin, rows;  // tokens before this one; the first row, and how many
  Scratch& s;
  const int64_t carry_line;

  // ---- Self-attention

  float* kept(const Time& at, int64_t layer, int64_t what) const {
    return const_cast<float*>(at.kept.data()) + (layer * 2 + what) * at.rows * d.stride;
  }

  void self_attention(int64_t layer) {
    const AttentionLayer& attention = d.layers[layer].self;
    const Input& in = s.flow.in;
    attention.queries(in, {s.queries.data(), d.width});
    float* keys = kept(now, layer, 0) + begin * d.stride;
    attention.keys(in, {keys, d.stride});
    attention.values(in, {kept(now, layer, 1) + begin * d.stride, d.stride});
    // Products run over whole vectors: what they read beyond the last head must be a number.
    for (int64_t n = 0; n < rows; ++n)
      std::fill(keys + n * d.stride + d.width, keys + (n + 1) * d.stride, 0.0f);
    for (int64_t n = 0; n < rows; ++n) self_row(layer, attention.map, n);
  }

  void self_row(int64_t layer, const MapRow& map, int64_t n) {
    const int64_t columns = time + 1;
    float* logits = maps.self.row(layer, begin + n);
    std::fill_n(logits - HeadLines::border, maps.self.plane, 0.0f);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t row = row_of(n, i);
      s.keys[i] = kept(o.times[i], layer, 0) + row * d.stride;
      s.values[i] = kept(o.times[i], layer, 1) + row * d.stride;
    }
    for (int64_t h = 0; h < d.heads; ++h) {
      const float* query = s.queries.data() + n * d.width + h * d.head_dim;
      std::copy_n(query, d.head_dim, s.padded.data());
      for (int64_t i = 0; i < columns; ++i) {
        const float* key = s.keys[i] + h * d.head_dim;
        Vector<float> sum = {};
        for (int64_t x = 0; x < d.head_dim; x += lanes<float>)
          sum += load<Vector<float>>(s.padded.data() + x) * load<Vector<float>>(key + x);
        logits[h * maps.self.line + i] = total<float>(sum);
      }
    }
    float* carry = s.self_carry.data() + n * d.heads * carry_line;
    if (map.carries && layer > 0)
      for (int64_t h = 0; h < d.heads; ++h)
        map.mix(carry + h * carry_line, logits + h * maps.self.line, columns);
    const HeadLines* read = find_read(&Recent::self, layer, map, n);
    const HeadLines evolved =
        map.evolve(read, {logits, maps.self.line}, columns, carry, carry_line);
    for (int64_t h = 0; h < d.heads; ++h) {
      softmax_line(evolved.first + h * evolved.line, columns, s.evolved.data());
      float* out = s.context.data() + n * d.width + h * d.head_dim;
      for (int64_t x = 0; x < d.head_dim; x += lanes<float>) {
        Vector<float> sum = {};
        for (int64_t i = 0; i < columns; ++i)
          sum += s.evolved.data()[i] * load<Vector<float>>(s.values[i] + h * d.head_dim + x);
        store_part(out + x, sum, std::min(lanes<float>, d.head_dim - x));
      }
    }
  }

  // A_in of what row n's map reads: its own row and earlier ones.
  const HeadLines* find_read(Maps Recent::*kind, int64_t layer, const MapRow& map, int64_t n) {
    for (int64_t back = 0; back <= map.others(); ++back) {
      HeadLines& lines = s.lines[map.others() - back];
      lines = {nullptr, 0};
      if (back > time) continue;
      const Maps& then = o.recent[(time - back) % o.recent.size()].*kind;
      lines = {then.row(layer, row_of(n, time - back)), then.line};
    }
    return s.lines.data();
  }

  // Where row n's token of step i was computed.
  int64_t row_of(int64_t n, int64_t i) const {
    return i == time ? begin + n : o.rows_of[(begin + n) * time + i];
  }

  // ---- Encoder-decoder attention

  void cross_attention(int64_t layer) {
    const AttentionLayer& attention = d.layers[layer].cross;
    attention.queries(s.flow.in, {s.queries.data(), d.width});
    for (int64_t n = 0; n < rows;) {
      int64_t end = n + 1;
      while (end < rows && step.sentences[begin + end] == step.sentences[begin + n]) ++end;
      cross_rows(layer, attention.map, n, end);
      n = end;
    }
  }

  // Rows of one sentence, which share its keys and values.
  void cross_rows(int64_t layer, const MapRow& map, int64_t from, int64_t to) {
    const int64_t sentence = step.sentences[begin + from];
    const Source& source = o.sources[layer];
    SentenceAttention{
        d.heads, d.head_dim, to - from, o.lengths[sentence],
        s.queries.data() + from * d.width,
        source.keys.data() + o.first_column[sentence] * d.width,
        source.values.data() + o.first_position[sentence] * d.stride, d.stride,
        maps.cross.row(layer, begin + from) - HeadLines::border, maps.cross.line, maps.cross.plane,
        s.cross_carry.data() + from * d.heads * carry_line,
        s.evolved.data() + from * d.heads * carry_line, carry_line,
        s.context.data() + from * d.width,
    }.run(map, layer == 0, [&](int64_t n) {
      return find_read(&Recent::cross, layer, map, from + n);
    });
  }

  // ---- The next tokens

  void choose() {
    std::vector<Top> tops(rows);
    std::vector<float> ends(rows);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t place = (begin + n) * step.most;
      tops[n].begin(step.most, step.best + place, step.best_tokens + place);
    }
    const int64_t vocabulary = d.output.columns();
    d.set(s.flow.in, s.x.data(), d.width, rows);
    for (int64_t first = 0; first < vocabulary; first += piece) {
      const int64_t count = std::min(piece, vocabulary - first);
      d.output.columns(s.flow.in, {s.logits.data(), piece}, first, first + count);
      for (int64_t n = 0; n < rows; ++n) {
        float* logits = s.logits.data() + n * piece;
        std::fill(logits + count, logits + whole_vectors(count, lanes<float>), -INFINITY);
        tops[n].add_to_sum(logits, count);
        const auto has = [&](int64_t token) { return token >= first && token < first + count; };
        if (has(step.eos)) ends[n] = logits[step.eos - first];
        if (has(step.eos) && step.no_end) logits[step.eos - first] = -INFINITY;
        if (has(step.unk)) logits[step.unk - first] -= step.unk_penalty;
        if (has(step.pad)) logits[step.pad - first] = -INFINITY;
        tops[n].choose(logits, first, count);
      }
    }
    for (int64_t n = 0; n < rows; ++n) {
      if (step.last[begin + n]) tops[n].only(step.no_end ? -INFINITY : ends[n], step.eos);
      tops[n].finish();
    }
  }
};

void Decoding::step(const DecodingStep& step) {
  const int64_t rows = step.rows;
  remember(step);
  Time& now = times.emplace_back(rows, d.layers.size() * rows * 2 * d.stride);
  const int64_t time = times.size() - 1;
  Recent& maps = recent[time % recent.size()];
  // Later steps have more columns, but read each row as many places further left as they are steps
  // later: at most the border behind it.
  maps.self.shape(d, rows, time + 1);
  maps.cross.shape(d, rows, longest);
  const std::vector<int64_t> blocks = blocks_of(step);
  const int64_t count = blocks.size() - 1;
  scratches.resize(std::max<size_t>(scratches.size(), step.threads));
  each_share(count, std::min(step.threads, count), [&](int64_t thread, int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      Block(*this, step, now, maps, blocks[b], blocks[b + 1], scratches[thread]).run();
  });
}

}  // namespace ea

extern "C" {

// Null, or what went wrong.

const char* decoder_new(const DecoderWeights* w, ea::Decoder** decoder) {
  return ea::message_of([&] { *decoder = new ea::Decoder(*w); });
}
void decoder_free(ea::Decoder* decoder) { delete decoder; }
const char* decoding_new(
    const ea::Decoder* decoder, const Encoded* encoded, ea::Decoding** decoding) {
  return ea::message_of([&] { *decoding = new ea::Decoding(*decoder, *encoded); });
}
const char* decoding_step(ea::Decoding* decoding, const DecodingStep* step) {
  return ea::message_of([&] { decoding->step(*step); });
}
void decoding_free(ea::Decoding* decoding) { delete decoding; }
}
