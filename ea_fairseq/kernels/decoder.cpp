// A Transformer's decoder, whole, one token further for every hypothesis of a beam search: with plain
// or evolving attention, float32.
//
// Nothing that was written is ever moved. A hypothesis knows the row of each of its earlier tokens;
// a beam that reorders changes these alone. Sources stay as long as they are, without padding.

#include <vector>

#include "linear.h"
#include "lines.h"
#include "map_row.h"
#include "products.h"
#include "top.h"

extern "C" {

// What the Python side passes; see fused_decoder.py. Null pointers stand for what is absent.
struct AttentionWeights {
  LinearWeights queries, keys, values, output;
  NormWeights norm;
  MapWeights map;
};
struct LayerWeights {
  AttentionWeights self, cross;
  LinearWeights first, second;  // of the feed-forward network
  NormWeights norm;
};
struct DecoderWeights {
  const LayerWeights* layers;
  int64_t layer_count, width, heads, norm_first;
  const float *embedding, *positions;  // (vocabulary, width), (longest, width) or null; not copied
  double embedding_scale;
  NormWeights embedding_norm, final_norm;
  LinearWeights output;
};

// What is translated: (positions, sentences, width), a sentence's own positions at the end.
struct Encoded {
  const float* data;
  int64_t position_stride, sentence_stride, longest, sentences;
  const int64_t* lengths;
  int64_t threads;
};

// One step. Neighbouring rows may share a sentence; those that do are one after the other.
struct DecodingStep {
  int64_t rows, threads;
  const int64_t *tokens, *sentences;
  const int64_t* parents;  // row of each one's previous token, in the step before; unused in the first
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

class Decoder {
 public:
  struct Attention {
    Attention(const AttentionWeights& w, int64_t heads)
        : queries(w.queries, std::sqrt(float(heads) / w.queries.columns)), keys(w.keys),
          values(w.values), output(w.output), norm(w.norm, w.output.columns), map(w.map, heads) {}
    Linear queries, keys, values, output;
    LayerNorm norm;
    MapRow map;
  };
  struct Layer {
    Layer(const LayerWeights& w, int64_t heads)
        : self(w.self, heads), cross(w.cross, heads), first(w.first), second(w.second),
          norm(w.norm, w.second.columns) {}
    Attention self, cross;
    Linear first, second;
    LayerNorm norm;
  };

  explicit Decoder(const DecoderWeights& w)
      : w(w), width(w.width), heads(w.heads), head_dim(width / heads),
        embedding_norm(w.embedding_norm, width), final_norm(w.final_norm, width),
        output(w.output) {
    for (int64_t i = 0; i < w.layer_count; ++i) layers.emplace_back(w.layers[i], heads);
    for (const Layer& layer : layers)
      earlier = std::max({earlier, layer.self.map.earlier(), layer.cross.map.earlier()});
  }

  const DecoderWeights w;
  const int64_t width, heads, head_dim;
  std::vector<Layer> layers;
  LayerNorm embedding_norm, final_norm;
  Linear output;
  int64_t earlier = 0;  // rows of maps that a new one may read
};

// The search over one batch of sentences.
class Decoding {
 public:
  Decoding(const Decoder& decoder, const Encoded& encoded)
      : d(decoder), stride(whole_vectors(d.width - d.head_dim, lanes<float>) +
                           whole_vectors(d.head_dim, lanes<float>)),
        longest(encoded.longest), lengths(encoded.lengths, encoded.lengths + encoded.sentences),
        recent(d.earlier + 1) {
    int64_t positions = 0, columns = 0;
    for (int64_t length : lengths) {
      first_position.push_back(positions);
      first_column.push_back(columns);
      positions += length;
      columns += whole_vectors(length, lanes<float>);
    }
    for (size_t i = 0; i < d.layers.size(); ++i)
      sources.push_back({Buffer<float>(columns * d.width), Buffer<float>(positions * stride)});
    each_share(encoded.sentences, std::min(encoded.threads, encoded.sentences),
               [&](int64_t, int64_t begin, int64_t end) { project(encoded, begin, end); });
  }

  void step(const DecodingStep& step);

 private:
  static constexpr int64_t block = 96;  // rows that go through all layers together
  static constexpr int64_t piece = 8 * Linear::panel;  // logits of a row at once

  // Keys by head, dimension and position, values by position, of all sentences.
  struct Source {
    Buffer<float> keys, values;
  };
  // What one step wrote: keys and values by layer and row, `stride` numbers each.
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
    Buffer<float> x, normed, queries, context, hidden, evolved, self_carry, cross_carry, padded, logits;
    std::vector<const float*> keys, values;
    std::vector<HeadLines> lines;
  };
  class Block;

  const Decoder& d;
  const int64_t stride;  // between rows of keys or values, the last head's whole vectors included
  const int64_t longest;
  const std::vector<int64_t> lengths;
  std::vector<int64_t> first_position, first_column;  // of each sentence, among all
  std::vector<Source> sources;                        // by layer
  std::vector<Time> times;
  std::vector<Recent> recent;  // of the last steps; step t is at t % size
  std::vector<int32_t> rows_of, next_rows_of;  // (rows, steps): where each hypothesis's tokens are
  std::vector<Scratch> scratches;

  // Keys and values of sentences' encoded positions, for all layers.
  void project(const Encoded& encoded, int64_t begin, int64_t end) {
    const int64_t depth = d.layers[0].cross.keys.steps();
    Buffer<float> in(longest * depth), keys(longest * d.width);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t length = lengths[n], wide = whole_vectors(length, lanes<float>);
      for (int64_t i = 0; i < length; ++i) {
        const int64_t position = longest - length + i;
        const float* from = encoded.data + position * encoded.position_stride +
                            n * encoded.sentence_stride;
        std::copy_n(from, depth, in.data() + i * depth);
      }
      for (size_t l = 0; l < d.layers.size(); ++l) {
        const Decoder::Attention& attention = d.layers[l].cross;
        attention.keys({in.data(), depth, length, keys.data(), d.width});
        float* to = sources[l].keys.data() + first_column[n] * d.width;
        for (int64_t x = 0; x < d.width; ++x)
          for (int64_t i = 0; i < wide; ++i)
            to[x * wide + i] = i < length ? keys.data()[i * d.width + x] : 0.0f;
        float* values = sources[l].values.data() + first_position[n] * stride;
        attention.values({in.data(), depth, length, values, stride});
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
    const int64_t count = std::max((step.rows + block - 1) / block, step.threads);
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
    for (Buffer<float>* buffer : {&s.x, &s.normed, &s.queries, &s.context})
      buffer->reserve(rows * d.width);
    for (Buffer<float>* buffer : {&s.self_carry, &s.cross_carry, &s.evolved})
      buffer->reserve(rows * d.heads * carry_line);
    s.padded.reserve(d.heads * whole_vectors(d.head_dim, lanes<float>));
    s.logits.reserve(rows * piece);
    s.keys.resize(time + 1);
    s.values.resize(time + 1);
    s.lines.resize(d.earlier + 1);
  }

  void run() {
    embed();
    for (size_t l = 0; l < d.layers.size(); ++l) {
      const Decoder::Layer& layer = d.layers[l];
      residual(layer.self.norm, [&](const float* in) {
        self_attention(l, in);
        layer.self.output(from_context());
      });
      residual(layer.cross.norm, [&](const float* in) {
        cross_attention(l, in);
        layer.cross.output(from_context());
      });
      residual(layer.norm, [&](const float* in) {
        s.hidden.reserve(rows * layer.first.columns());
        const int64_t inner = layer.first.columns();
        layer.first({in, d.width, rows, s.hidden.data(), inner, nullptr, true});
        layer.second({s.hidden.data(), inner, rows, s.x.data(), d.width, s.x.data()});
      });
    }
    d.final_norm(s.x.data(), rows, s.x.data());
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

  void embed() {
    const float scale = d.w.embedding_scale;
    for (int64_t n = 0; n < rows; ++n) {
      const float* word = d.w.embedding + step.tokens[begin + n] * d.width;
      const float* position = d.w.positions ? d.w.positions + time * d.width : nullptr;
      float* to = s.x.data() + n * d.width;
      for (int64_t x = 0; x < d.width; ++x)
        to[x] = scale * word[x] + (position ? position[x] : 0.0f);
    }
    d.embedding_norm(s.x.data(), rows, s.x.data());
  }

  // x + inner(x), with the norm in front or behind.
  template <typename Inner>
  void residual(const LayerNorm& norm, Inner inner) {
    if (d.w.norm_first) {
      norm(s.x.data(), rows, s.normed.data());
      inner(s.normed.data());
    } else {
      inner(s.x.data());
      norm(s.x.data(), rows, s.x.data());
    }
  }
  Linear::Rows from_context() const {
    return {s.context.data(), d.width, rows, s.x.data(), d.width, s.x.data()};
  }

  // ---- Self-attention

  float* kept(const Time& at, int64_t layer, int64_t what) const {
    return const_cast<float*>(at.kept.data()) + (layer * 2 + what) * at.rows * o.stride;
  }

  void self_attention(int64_t layer, const float* in) {
    const Decoder::Attention& attention = d.layers[layer].self;
    attention.queries({in, d.width, rows, s.queries.data(), d.width});
    float* keys = kept(now, layer, 0) + begin * o.stride;
    attention.keys({in, d.width, rows, keys, o.stride});
    attention.values({in, d.width, rows, kept(now, layer, 1) + begin * o.stride, o.stride});
    // Products run over whole vectors: what they read beyond the last head must be a number.
    for (int64_t n = 0; n < rows; ++n)
      std::fill(keys + n * o.stride + d.width, keys + (n + 1) * o.stride, 0.0f);
    for (int64_t n = 0; n < rows; ++n) self_row(layer, attention.map, n);
  }

  void self_row(int64_t layer, const MapRow& map, int64_t n) {
    const int64_t columns = time + 1;
    float* logits = cleared(maps.self, layer, n);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t row = row_of(n, i);
      s.keys[i] = kept(o.times[i], layer, 0) + row * o.stride;
      s.values[i] = kept(o.times[i], layer, 1) + row * o.stride;
    }
    const int64_t deep = whole_vectors(d.head_dim, lanes<float>);
    for (int64_t h = 0; h < d.heads; ++h) {
      const float* query = s.queries.data() + n * d.width + h * d.head_dim;
      std::fill_n(s.padded.data(), deep, 0.0f);
      std::copy_n(query, d.head_dim, s.padded.data());
      for (int64_t i = 0; i < columns; ++i) {
        const float* key = s.keys[i] + h * d.head_dim;
        Vector<float> sum = {};
        for (int64_t x = 0; x < deep; x += lanes<float>)
          sum += load<Vector<float>>(s.padded.data() + x) * load<Vector<float>>(key + x);
        logits[h * maps.self.line + i] = total<float>(sum);
      }
    }
    float* carry = s.self_carry.data() + n * d.heads * carry_line;
    if (map.carries && layer > 0)
      for (int64_t h = 0; h < d.heads; ++h)
        map.mix(carry + h * carry_line, logits + h * maps.self.line, columns);
    find_earlier(&Recent::self, layer, map, n);
    const HeadLines evolved = evolve(map, columns, carry);
    for (int64_t h = 0; h < d.heads; ++h) {
      softmax(evolved.first + h * evolved.line, columns, s.evolved.data());
      float* out = s.context.data() + n * d.width + h * d.head_dim;
      for (int64_t x = 0; x < d.head_dim; x += lanes<float>) {
        Vector<float> sum = {};
        for (int64_t i = 0; i < columns; ++i)
          sum += s.evolved.data()[i] * load<Vector<float>>(s.values[i] + h * d.head_dim + x);
        store_part(out + x, sum, std::min(lanes<float>, d.head_dim - x));
      }
    }
  }

  // A row's lines, of zeros.
  float* cleared(Maps& all, int64_t layer, int64_t n) const {
    float* lines = all.row(layer, begin + n);
    std::fill_n(lines - HeadLines::border, all.plane, 0.0f);
    return lines;
  }

  // s.lines: A_in of what row n's map reads.
  void find_earlier(Maps Recent::*kind, int64_t layer, const MapRow& map, int64_t n) {
    for (int64_t back = 0; back <= map.earlier(); ++back) {
      HeadLines& lines = s.lines[map.earlier() - back];
      lines = {nullptr, 0};
      if (back > time) continue;
      const Maps& then = o.recent[(time - back) % o.recent.size()].*kind;
      lines = {then.row(layer, row_of(n, time - back)), then.line};
    }
  }

  // Where row n's token of step i was computed.
  int64_t row_of(int64_t n, int64_t i) const {
    return i == time ? begin + n : o.rows_of[(begin + n) * time + i];
  }

  // Z of the row whose A_in and earlier ones are in s.lines: for the layer above in `carry`, or A_in
  // itself where there is no convolution.
  HeadLines evolve(const MapRow& map, int64_t columns, float* carry) const {
    const HeadLines& now = s.lines[map.earlier()];
    if (map.convolves) {
      map.evolve(s.lines.data(), columns, carry, carry_line);
    } else if (map.carries) {
      for (int64_t h = 0; h < d.heads; ++h)
        std::copy_n(now.first + h * now.line, whole_vectors(columns, lanes<float>),
                    carry + h * carry_line);
    } else {
      return now;
    }
    return {carry, carry_line};
  }

  // ---- Encoder-decoder attention

  void cross_attention(int64_t layer, const float* in) {
    const Decoder::Attention& attention = d.layers[layer].cross;
    attention.queries({in, d.width, rows, s.queries.data(), d.width});
    for (int64_t n = 0; n < rows;) {
      int64_t end = n + 1;
      while (end < rows && step.sentences[begin + end] == step.sentences[begin + n]) ++end;
      cross_rows(layer, attention.map, n, end);
      n = end;
    }
  }

  // Rows of one sentence, which share its keys and values.
  void cross_rows(int64_t layer, const MapRow& map, int64_t from, int64_t to) {
    const int64_t sentence = step.sentences[begin + from], columns = o.lengths[sentence];
    const int64_t wide = whole_vectors(columns, lanes<float>);
    const int64_t plane = maps.cross.plane, carry_plane = d.heads * carry_line;
    for (int64_t n = from; n < to; ++n) cleared(maps.cross, layer, n);
    float* logits = maps.cross.row(layer, begin + from);
    const float* keys = o.sources[layer].keys.data() + o.first_column[sentence] * d.width;
    const float* values = o.sources[layer].values.data() + o.first_position[sentence] * o.stride;
    for (int64_t h = 0; h < d.heads; ++h) {
      const float* queries = s.queries.data() + from * d.width + h * d.head_dim;
      Product<float>{queries, d.width, 1, keys + h * d.head_dim * wide, wide,
                     logits + h * maps.cross.line, plane, to - from, d.head_dim, columns}.run();
    }
    for (int64_t n = from; n < to; ++n, logits += plane) {
      float* carry = s.cross_carry.data() + n * carry_plane;
      if (map.carries && layer > 0)
        for (int64_t h = 0; h < d.heads; ++h)
          map.mix(carry + h * carry_line, logits + h * maps.cross.line, columns);
      find_earlier(&Recent::cross, layer, map, n);
      const HeadLines evolved = evolve(map, columns, carry);
      for (int64_t h = 0; h < d.heads; ++h)
        softmax(evolved.first + h * evolved.line, columns,
                s.evolved.data() + n * carry_plane + h * carry_line);
    }
    for (int64_t h = 0; h < d.heads; ++h) {
      const float* probs = s.evolved.data() + from * carry_plane + h * carry_line;
      float* out = s.context.data() + from * d.width + h * d.head_dim;
      Product<float>{probs, carry_plane, 1, values + h * d.head_dim, o.stride, out, d.width,
                     to - from, columns, d.head_dim}.run();
    }
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
    for (int64_t first = 0; first < vocabulary; first += piece) {
      const int64_t count = std::min(piece, vocabulary - first);
      d.output.columns({s.x.data(), d.width, rows, s.logits.data(), piece}, first, first + count);
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
  Time& now = times.emplace_back(rows, d.layers.size() * rows * 2 * stride);
  const int64_t time = times.size() - 1;
  Recent& maps = recent[time % recent.size()];
  maps.self.shape(d, rows, time + 1 + d.earlier);
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

ea::Decoder* decoder_new(const DecoderWeights* w) { return new ea::Decoder(*w); }
void decoder_free(ea::Decoder* decoder) { delete decoder; }
ea::Decoding* decoding_new(const ea::Decoder* decoder, const Encoded* encoded) {
  return new ea::Decoding(*decoder, *encoded);
}
void decoding_step(ea::Decoding* decoding, const DecodingStep* step) { decoding->step(*step); }
void decoding_free(ea::Decoding* decoding) { delete decoding; }
}
