// Evolving attention on the CPU, a sentence at a time: products, mixing, convolution, softmax and
// their gradients while a sentence's maps are in the processor's cache.
//
// Same equations as ea_fairseq/attention (contract.py, convolution.py, variants/evolving.py); float
// and double. Gradients are computed from recomputed maps, so that training keeps none.
//
// Scratch lines have a multiple of a vector's columns, with zeros behind the map's, so that loops
// run over whole vectors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lines.h"
#include "products.h"

extern "C" {

// What the Python side passes; see fused_attention.py. Maps are contiguous (batch, heads, tgt_len,
// src_len); null pointers stand for what is absent.
struct Attention {
  int64_t batch, heads, tgt_len, src_len, head_dim;
  int64_t kernel_size, down, right, lower_triangular;
  int64_t threads;
  double alpha, beta, scaling;
  Heads queries, keys, values;
  const uint8_t* visible;  // bool, or null: everything is visible
  int64_t visible_batch_stride, visible_row_stride;
  const void* weight;  // (heads out, heads in, kernel_size, kernel_size)
  const void* bias;    // (heads)
  const void* carry;   // map, or null: the first layer, A_in = logits
  const void* noise;   // map of dropout's factors of the probabilities, or null
  void* scratch;       // scratch_size() numbers
};
struct Results {
  Heads output;
  void* evolved;  // map Z, or null
  void* probs;    // map of probabilities before dropout, or null
};
struct Gradients {
  Heads output;                 // in
  const void *evolved, *probs;  // in, maps or null
  Heads queries, keys, values;  // out
  void* carry;                  // out, map or null
  void *weight, *bias;          // out
};
}

namespace ea {

template <typename T>
class Worker {
 public:
  explicit Worker(const Attention& attention)
      : m(attention),
        reach((m.kernel_size - 1) / 2),
        border(2 * reach),
        width(whole_vectors(m.src_len, lanes<T>)),
        depth(whole_vectors(m.head_dim, lanes<T>)),
        line(border + width + border + lanes<T>),
        plane((m.tgt_len + 2 * border) * line),
        alpha(static_cast<T>(m.alpha)),
        beta(static_cast<T>(m.beta)) {}

  int64_t scratch_size() const { return m.threads * Scratch(*this, 0).end; }

  void forward(const Results& results) const {
    const std::vector<T> taps = forward_taps();
    each_sentence([&](int64_t n, Scratch& s) {
      mix(n, s);
      ask_for(results.output, n + 1, m.tgt_len);
      ask_for(results.evolved, n + 1);
      for (int64_t t = 0; t < m.tgt_len; ++t) {
        evolve(n, t, taps, s);
        for (int64_t h = 0; h < m.heads; ++h) {
          const T* evolved = s.evolved + h * width;
          if (results.evolved) write(evolved, at(results.evolved, n, h, t), s);
          T* probs = s.map(h, t);
          softmax(evolved, probs, s);
          if (results.probs) write(probs, at(results.probs, n, h, t), s);
          if (m.noise) multiply_by(at(m.noise, n, h, t), probs, s);
        }
      }
      for (int64_t h = 0; h < m.heads; ++h) {
        pack(m.values, n, h, m.src_len, T(1), s.packed);
        product_of_rows(s.map(h, 0), s, row<T>(results.output, n, h, 0), results.output.row_stride);
      }
    });
  }

  void backward(const Gradients& g) const {
    const std::vector<T> taps = forward_taps(), transposed = transposed_taps();
    std::vector<Sums> sums(m.threads, Sums(m));
    each_sentence([&](int64_t n, Scratch& s) {
      mix(n, s);
      ask_for(g.output, n + 1, m.tgt_len);
      ask_for(g.evolved, n + 1);
      for (int64_t h = 0; h < m.heads; ++h)
        product_of_positions(g.output, m.values, T(1), n, h, s.grad(h, 0), s);
      s.clear_border(s.under);
      for (int64_t t = 0; t < m.tgt_len; ++t) {
        evolve(n, t, taps, s);
        for (int64_t h = 0; h < m.heads; ++h) {
          softmax(s.evolved + h * width, s.map(h, t), s);
          sums[s.thread].bias[h] += evolved_gradient(n, h, t, g, s);
          if (m.noise) multiply_by(at(m.noise, n, h, t), s.map(h, t), s);
        }
      }
      // Few enough rows at a time that they stay in the nearest cache for all weights.
      const int64_t bytes = std::max<int64_t>(1, m.heads) * line * sizeof(T);
      const int64_t few = std::max<int64_t>(1, 16384 / bytes);
      for (int64_t t = 0; t < m.tgt_len; t += few)
        weight_gradient(t, std::min(t + few, m.tgt_len), s, sums[s.thread].weight);
      for (int64_t t = 0; t < m.tgt_len; ++t) mixed_gradient(n, t, transposed, g, s);
      for (int64_t h = 0; h < m.heads; ++h) {
        const T scaling = static_cast<T>(m.scaling);
        pack(m.keys, n, h, m.src_len, scaling, s.packed);
        product_of_rows(s.grad(h, 0), s, row<T>(g.queries, n, h, 0), g.queries.row_stride);
        pack(m.queries, n, h, m.tgt_len, scaling, s.packed);
        product_of_columns(s.grad(h, 0), s, row<T>(g.keys, n, h, 0), g.keys.row_stride);
        pack(g.output, n, h, m.tgt_len, T(1), s.packed);
        product_of_columns(s.map(h, 0), s, row<T>(g.values, n, h, 0), g.values.row_stride);
      }
    });
    reduce(sums, g);
  }

 private:
  // Rows that go through a product together: what they see lies between the same two columns.
  static constexpr int64_t tile = 12;

  // One thread's share of the scratch memory.
  struct Scratch {
    Scratch(const Worker& w, int64_t thread) : w(w), thread(thread) {
      const int64_t map_size = w.m.heads * w.m.tgt_len * w.width;
      T* next = w.m.scratch ? static_cast<T*>(w.m.scratch) : nullptr;
      const auto take = [&](int64_t numbers) {
        const int64_t offset = end;
        end += whole_vectors(numbers, lanes<T>);
        return offset;
      };
      const int64_t offsets[] = {
          take(map_size),
          take(map_size),
          take(w.m.heads * w.plane),
          take(w.m.heads * w.plane),
          take(w.m.heads * w.width),
          take(w.m.heads * w.width),
          take(std::max(w.depth * std::max(w.m.src_len, w.m.tgt_len), w.m.head_dim * w.width)),
          take(w.width),
          take(w.width),
          take(w.m.tgt_len),
          take(w.m.tgt_len),
      };
      if (!next) return;
      next += thread * end;
      maps = next + offsets[0];
      grads = next + offsets[1];
      mixed = next + offsets[2];
      under = next + offsets[3];
      term = next + offsets[4];
      evolved = next + offsets[5];
      packed = next + offsets[6];
      visible = reinterpret_cast<Integer*>(next + offsets[7]);
      kept = reinterpret_cast<Integer*>(next + offsets[8]);
      firsts = reinterpret_cast<Integer*>(next + offsets[9]);
      lasts = reinterpret_cast<Integer*>(next + offsets[10]);
    }
    using Integer = typename Lanes<T>::integer;

    T* map(int64_t h, int64_t t) const { return maps + (h * w.m.tgt_len + t) * w.width; }
    T* grad(int64_t h, int64_t t) const { return grads + (h * w.m.tgt_len + t) * w.width; }
    T* padded(T* images, int64_t h, int64_t t) const {
      return images + h * w.plane + (t + w.border) * w.line + w.border;
    }
    // The rows above and below each padded image; each line clears its own two ends.
    void clear_border(T* images) const {
      for (int64_t h = 0; h < w.m.heads; ++h, images += w.plane) {
        std::fill_n(images, w.border * w.line, T(0));
        std::fill_n(images + (w.border + w.m.tgt_len) * w.line, w.border * w.line, T(0));
      }
    }

    const Worker& w;
    T *maps{}, *grads{};        // (heads, tgt_len, width): logits, then probabilities; gradients
    T *mixed{}, *under{};       // padded images: A_in; gradient under the relu
    T *term{}, *evolved{};      // (heads, width), one row
    T* packed{};                // an operand of a product
    Integer *visible{}, *kept{};  // (width), one row: -1 or 0
    Integer *firsts{}, *lasts{};  // (tgt_len): whole vectors with a row's visible columns
    int64_t first = 0, last = 0;  // those of the row at hand
    int64_t thread, end = 0;
  };

  // Gradients of the parameters as one thread adds them up, [row][column][in][out].
  struct Sums {
    explicit Sums(const Attention& m)
        : weight(m.kernel_size * m.kernel_size * m.heads * m.heads), bias(m.heads) {}
    std::vector<Vector<T>> weight, bias;
  };

  const Attention& m;
  const int64_t reach, border, width, depth, line, plane;
  const T alpha, beta;

  template <typename Task>
  void each_sentence(Task task) const {
    each_share(m.batch, m.threads, [&](int64_t thread, int64_t begin, int64_t end) {
      Scratch scratch(*this, thread);
      scratch.clear_border(scratch.mixed);
      for (int64_t n = begin; n < end; ++n) task(n, scratch);
    });
  }

  const T* at(const void* map, int64_t n, int64_t h, int64_t t) const {
    return static_cast<const T*>(map) + ((n * m.heads + h) * m.tgt_len + t) * m.src_len;
  }
  T* at(void* map, int64_t n, int64_t h, int64_t t) const {
    return const_cast<T*>(at(const_cast<const void*>(map), n, h, t));
  }
  const uint8_t* visible_row(int64_t n, int64_t t) const {
    return m.visible + n * m.visible_batch_stride + t * m.visible_row_stride;
  }
  int64_t count(int64_t x) const { return std::min(lanes<T>, m.src_len - x); }

  // Memory is asked for a sentence's numbers while the one before is at work: it takes longer to
  // answer than the processor can wait. Inlined, lest the compiler drops what has no result.
  static constexpr int64_t bytes_ahead = 65536;  // a larger map would drive others from the cache
  __attribute__((always_inline)) void ask_for(const Heads& heads, int64_t n, int64_t length) const {
    if (n >= m.batch) return;
    for (int64_t position = 0; position < length; ++position)
      for (int64_t h = 0; h < m.heads; ++h)
        ask_for(row<T>(heads, n, h, position), m.head_dim);
  }
  __attribute__((always_inline)) void ask_for(const void* map, int64_t n) const {
    const int64_t count = m.heads * m.tgt_len * m.src_len;
    if (map && n < m.batch && count * int64_t(sizeof(T)) <= bytes_ahead)
      ask_for(at(map, n, 0, 0), count);
  }
  __attribute__((always_inline)) static void ask_for(const T* numbers, int64_t count) {
    for (int64_t x = 0; x < count; x += 64 / sizeof(T)) __builtin_prefetch(numbers + x, 0, 2);
  }

  // ---- Products of queries, keys and values

  // s.packed[position][x] = scaling * heads[position][x], in lines of `depth`.
  void pack(const Heads& heads, int64_t n, int64_t h, int64_t length, T scaling, T* packed) const {
    for (int64_t position = 0; position < length; ++position, packed += depth) {
      const T* from = row<T>(heads, n, h, position);
      for (int64_t x = 0; x < depth; x += lanes<T>)
        store(packed + x,
              scaling * load_part(from + x, std::min(lanes<T>, m.head_dim - x)));
    }
  }
  // s.packed[x][position] = scaling * heads[position][x], in lines of `width`.
  void pack_columns(const Heads& heads, int64_t n, int64_t h, T scaling, T* packed) const {
    constexpr int64_t side = Square<T>::side;
    const int64_t whole = m.head_dim / side * side;
    const T* from[side];
    for (int64_t position = 0; position < width; position += side, packed += side) {
      const int64_t count = std::min(side, m.src_len - position);
      for (int64_t i = 0; i < count; ++i) from[i] = row<T>(heads, n, h, position + i);
      for (int64_t x = 0; x < whole; x += side) {
        Square<T> square;
        for (int64_t i = 0; i < side; ++i)
          square.rows[i] = i < count ? scaling * load<typename Square<T>::Row>(from[i] + x)
                                     : typename Square<T>::Row{};
        square.turn();
        for (int64_t i = 0; i < side; ++i) store(packed + (x + i) * width, square.rows[i]);
      }
      for (int64_t x = whole; x < m.head_dim; ++x)
        for (int64_t i = 0; i < side; ++i)
          packed[x * width + i] = i < count ? scaling * from[i][x] : T(0);
    }
  }

  // What the rows from..to see: whole vectors of columns.
  std::pair<int64_t, int64_t> seen_by(int64_t from, int64_t to, const Scratch& s) const {
    int64_t first = width, last = 0;
    for (int64_t t = from; t < to; ++t) {
      if (s.firsts[t] == s.lasts[t]) continue;
      first = std::min<int64_t>(first, s.firsts[t]);
      last = std::max<int64_t>(last, s.lasts[t]);
    }
    return {std::min(first, last), last};
  }

  // map[t][s] = targets[t] . scaling * sources[s], where a row sees the column.
  void product_of_positions(const Heads& targets, const Heads& sources, T scaling, int64_t n,
                            int64_t h, T* map, Scratch& s) const {
    pack_columns(sources, n, h, scaling, s.packed);
    for (int64_t t = 0; t < m.tgt_len; t += tile) {
      const int64_t to = std::min(t + tile, m.tgt_len);
      const auto [first, last] = seen_by(t, to, s);
      Product<T>{row<T>(targets, n, h, t), targets.row_stride, 1, s.packed + first, width,
                 map + t * width + first, width, to - t, m.head_dim, last - first}
          .run();
    }
  }
  // out[t] = sum of map[t][s] * packed[s].
  void product_of_rows(const T* map, const Scratch& s, T* out, int64_t out_stride) const {
    for (int64_t t = 0; t < m.tgt_len; t += tile) {
      const int64_t to = std::min(t + tile, m.tgt_len);
      const auto [first, last] = seen_by(t, to, s);
      Product<T>{map + t * width + first, width, 1, s.packed + first * depth, depth,
                 out + t * out_stride, out_stride, to - t, std::min(last, m.src_len) - first,
                 m.head_dim}
          .run();
    }
  }
  // out[s] = sum of map[t][s] * packed[t].
  void product_of_columns(const T* map, const Scratch& s, T* out, int64_t out_stride) const {
    for (int64_t x = 0; x < m.src_len; x += tile) {
      const int64_t to = std::min(x + tile, m.src_len);
      int64_t from_row = 0, to_row = m.tgt_len;
      const auto blind = [&](int64_t t) { return s.lasts[t] <= x || s.firsts[t] >= to; };
      while (from_row < to_row && blind(from_row)) ++from_row;
      while (to_row > from_row && blind(to_row - 1)) --to_row;
      Product<T>{map + from_row * width + x, 1, width, s.packed + from_row * depth, depth,
                 out + x * out_stride, out_stride, to - x, to_row - from_row, m.head_dim}
          .run();
    }
  }

  // ---- Maps

  // A line of scratch to a map.
  void write(const T* from, T* to, const Scratch& s) const {
    for (int64_t x = 0; x < m.src_len; x += lanes<T>) {
      const bool seen = x >= s.first && x < s.last;
      store_part(to + x, seen ? load<Vector<T>>(from + x) : Vector<T>{}, count(x));
    }
  }
  void multiply_by(const T* factors, T* line, const Scratch& s) const {
    for (int64_t x = s.first; x < s.last; x += lanes<T>)
      store(line + x, load<Vector<T>>(line + x) * load_part(factors + x, count(x)));
  }
  void clear_outside(T* line, const Scratch& s) const {
    std::fill(line, line + s.first, T(0));
    std::fill(line + s.last, line + width, T(0));
  }
  void clear_ends(T* padded) const {
    for (int64_t x = -border; x < 0; ++x) padded[x] = 0;
    for (int64_t x = width; x < line - border; ++x) padded[x] = 0;
  }

  // Which columns of a row are visible.
  void find_visible(int64_t n, int64_t t, Scratch& s) const {
    s.first = 0;
    s.last = width;
    const uint8_t* visible = nullptr;
    if (m.visible) {
      visible = visible_row(n, t);
      const void* begin = std::memchr(visible, 1, m.src_len);
      int64_t end = m.src_len;
      while (begin && !visible[end - 1]) --end;
      s.first = begin ? (static_cast<const uint8_t*>(begin) - visible) / lanes<T> * lanes<T> : 0;
      s.last = begin ? whole_vectors(end, lanes<T>) : 0;
    }
    for (int64_t x = s.first; x < s.last; x += lanes<T>)
      store(s.visible + x, flags<T>(visible, x, m.src_len));
  }
  // Which of those the convolution's term reaches: those whose origin, `down` rows up and `right`
  // columns to the left, is in the map and visible too.
  void find_kept(int64_t n, int64_t t, Scratch& s) const {
    const uint8_t* origin = m.visible && t >= m.down ? visible_row(n, t - m.down) : nullptr;
    for (int64_t x = s.first; x < s.last; x += lanes<T>) {
      const auto seen = load<Integers<T>>(s.visible + x);
      const auto reached = t < m.down ? Integers<T>{} : flags<T>(origin, x - m.right, m.src_len);
      store(s.kept + x, seen & reached);
    }
  }

  // A_in = alpha * carry + (1 - alpha) * logits, 0 in hidden entries.
  void mix(int64_t n, Scratch& s) const {
    ask_for(m.queries, n + 1, m.tgt_len);
    ask_for(m.keys, n + 1, m.src_len);
    ask_for(m.values, n + 1, m.src_len);
    ask_for(m.carry, n + 1);
    for (int64_t t = 0; t < m.tgt_len; ++t) {
      find_visible(n, t, s);
      s.firsts[t] = s.first;
      s.lasts[t] = s.last;
    }
    for (int64_t h = 0; h < m.heads; ++h)
      product_of_positions(m.queries, m.keys, static_cast<T>(m.scaling), n, h, s.map(h, 0), s);
    for (int64_t t = 0; t < m.tgt_len; ++t) {
      find_visible(n, t, s);
      for (int64_t h = 0; h < m.heads; ++h) {
        T* mixed = s.padded(s.mixed, h, t);
        const T* logits = s.map(h, t);
        const T* carry = m.carry ? at(m.carry, n, h, t) : nullptr;
        clear_ends(mixed);
        clear_outside(mixed, s);
        for (int64_t x = s.first; x < s.last; x += lanes<T>) {
          Vector<T> values = load<Vector<T>>(logits + x);
          if (carry) values += alpha * (load_part(carry + x, count(x)) - values);
          values = load<Integers<T>>(s.visible + x) ? values : Vector<T>{};
          store(mixed + x, values);
        }
      }
    }
  }

  // taps[row][column][in][out] for the convolution and, turned round, for its gradient.
  std::vector<T> forward_taps() const {
    return taps([&](int64_t out, int64_t in, int64_t i, int64_t j) { return weight(out, in, i, j); });
  }
  std::vector<T> transposed_taps() const {
    const int64_t end = m.kernel_size - 1;
    return taps([&](int64_t out, int64_t in, int64_t i, int64_t j) {
      return weight(in, out, end - i, end - j);
    });
  }
  T weight(int64_t out, int64_t in, int64_t i, int64_t j) const {
    const T* all = static_cast<const T*>(m.weight);
    return all[((out * m.heads + in) * m.kernel_size + i) * m.kernel_size + j];
  }
  template <typename Weight>
  std::vector<T> taps(Weight weight) const {
    std::vector<T> result;
    for (int64_t i = 0; i < m.kernel_size; ++i)
      for (int64_t j = 0; j < m.kernel_size; ++j)
        for (int64_t in = 0; in < m.heads; ++in)
          for (int64_t out = 0; out < m.heads; ++out) result.push_back(weight(out, in, i, j));
    return result;
  }
  // The decoder's kernel is 0 above its diagonal, and below it when turned round.
  bool cut(int64_t i, int64_t j, bool transposed) const {
    return m.lower_triangular && (transposed ? j < i : j > i);
  }

  // s.term: the convolution of one row, without bias; `corner` is what the kernel's first row and
  // column read for x = 0.
  void convolve(const T* corner, const std::vector<T>& taps, bool transposed, Scratch& s) const {
    int64_t out = 0;
    for (; out + 4 <= m.heads; out += 4) convolve_heads<4>(corner, taps, transposed, out, s);
    for (; out < m.heads; ++out) convolve_heads<1>(corner, taps, transposed, out, s);
  }
  template <int heads>
  void convolve_heads(
      const T* corner, const std::vector<T>& taps, bool transposed, int64_t out, Scratch& s) const {
    const auto block = [&](auto count, int64_t x) {
      convolve_block<heads, decltype(count)::value>(corner + x, taps, transposed, out, s.term + x);
    };
    each_block<convolved_vectors>(s.first, s.last, lanes<T>, block);
  }
  template <int heads, int blocks>
  void convolve_block(
      const T* corner, const std::vector<T>& taps, bool transposed, int64_t out, T* term) const {
    Vector<T> sums[heads][blocks] = {};
    for (int64_t i = 0; i < m.kernel_size; ++i) {
      for (int64_t j = 0; j < m.kernel_size; ++j) {
        if (cut(i, j, transposed)) continue;
        const T* tap = taps.data() + (i * m.kernel_size + j) * m.heads * m.heads + out;
        const T* from = corner + i * line + j;
        for (int64_t in = 0; in < m.heads; ++in, tap += m.heads, from += plane) {
          Vector<T> values[blocks];
          for (int b = 0; b < blocks; ++b) values[b] = load<Vector<T>>(from + b * lanes<T>);
          for (int o = 0; o < heads; ++o)
            for (int b = 0; b < blocks; ++b) sums[o][b] += values[b] * tap[o];
        }
      }
    }
    for (int o = 0; o < heads; ++o)
      for (int b = 0; b < blocks; ++b) store(term + (out + o) * width + b * lanes<T>, sums[o][b]);
  }

  // s.evolved: Z = beta * relu(conv(A_in)) + (1 - beta) * A_in; s.term: what is under the relu.
  void evolve(int64_t n, int64_t t, const std::vector<T>& taps, Scratch& s) const {
    find_visible(n, t, s);
    find_kept(n, t, s);
    convolve(s.padded(s.mixed, 0, t - m.down - reach) - m.right - reach, taps, false, s);
    for (int64_t h = 0; h < m.heads; ++h) {
      const T bias = static_cast<const T*>(m.bias)[h];
      const T* mixed = s.padded(s.mixed, h, t);
      for (int64_t x = s.first; x < s.last; x += lanes<T>) {
        T* term = s.term + h * width + x;
        const auto kept = load<Integers<T>>(s.kept + x);
        const Vector<T> sum = kept ? load<Vector<T>>(term) + bias : Vector<T>{};
        const Vector<T> relu = sum < T(0) ? Vector<T>{} : sum;
        const Vector<T> values = load<Vector<T>>(mixed + x);
        store(term, sum);
        store(s.evolved + h * width + x, values + beta * (relu - values));
      }
    }
  }

  // probs: softmax of one line over its visible columns, 0 in the others.
  void softmax(const T* evolved, T* probs, Scratch& s) const {
    clear_outside(probs, s);
    softmax_line(evolved, s.visible, probs, s.first, s.last);
  }

  // From the probabilities' gradient (that after dropout in s.grad) to Z's, there, and to that
  // under the relu, whose sum it returns.
  Vector<T> evolved_gradient(
      int64_t n, int64_t h, int64_t t, const Gradients& g, const Scratch& s) const {
    T* grad = s.grad(h, t);
    const T* probs = s.map(h, t);
    T* under = s.padded(s.under, h, t);
    if (m.noise) multiply_by(at(m.noise, n, h, t), grad, s);
    if (g.probs) {
      const T* added = at(g.probs, n, h, t);
      for (int64_t x = s.first; x < s.last; x += lanes<T>)
        store(grad + x, load<Vector<T>>(grad + x) + load_part(added + x, count(x)));
    }
    Vector<T> dots = {}, sum = {};
    for (int64_t x = s.first; x < s.last; x += lanes<T>)
      dots += load<Vector<T>>(grad + x) * load<Vector<T>>(probs + x);
    const T dot = total<T>(dots);
    const T* carried = g.evolved ? at(g.evolved, n, h, t) : nullptr;
    clear_ends(under);
    clear_outside(under, s);
    clear_outside(grad, s);
    for (int64_t x = s.first; x < s.last; x += lanes<T>) {
      Vector<T> values = (load<Vector<T>>(grad + x) - dot) * load<Vector<T>>(probs + x);
      if (carried) {
        const auto seen = load<Integers<T>>(s.visible + x);
        values += seen ? load_part(carried + x, count(x)) : Vector<T>{};
      }
      const Vector<T> term = load<Vector<T>>(s.term + h * width + x);
      const Vector<T> active = term > T(0) ? beta * values : Vector<T>{};
      sum += active;
      store(grad + x, values);
      store(under + x, active);
    }
    return sum;
  }

  // From Z's gradient to that of A_in, and from there to the logits' and the carry's.
  void mixed_gradient(
      int64_t n, int64_t t, const std::vector<T>& transposed, const Gradients& g, Scratch& s) const {
    find_visible(n, t, s);
    convolve(s.padded(s.under, 0, t + m.down - reach) + m.right - reach, transposed, true, s);
    const T of_logits = m.carry ? T(1) - alpha : T(1);
    for (int64_t h = 0; h < m.heads; ++h) {
      T* grad = s.grad(h, t);
      T* mixed = s.term + h * width;
      for (int64_t x = s.first; x < s.last; x += lanes<T>) {
        Vector<T> values = (T(1) - beta) * load<Vector<T>>(grad + x) + load<Vector<T>>(mixed + x);
        values = load<Integers<T>>(s.visible + x) ? values : Vector<T>{};
        store(mixed + x, alpha * values);
        store(grad + x, of_logits * values);
      }
      if (g.carry) write(mixed, at(g.carry, n, h, t), s);
    }
  }

  // The gradient under the relu times what each tap reads, summed over rows.
  void weight_gradient(
      int64_t from, int64_t to, const Scratch& s, std::vector<Vector<T>>& sums) const {
    int64_t out = 0;
    for (; out + 4 <= m.heads; out += 4) weight_gradient_heads<4>(from, to, out, s, sums);
    for (; out < m.heads; ++out) weight_gradient_heads<1>(from, to, out, s, sums);
  }
  template <int heads>
  void weight_gradient_heads(int64_t from, int64_t to, int64_t out, const Scratch& s,
                             std::vector<Vector<T>>& sums) const {
    for (int64_t i = 0; i < m.kernel_size; ++i) {
      const int64_t end = m.lower_triangular ? i + 1 : m.kernel_size;
      for (int64_t in = 0; in < m.heads; ++in) {
        int64_t j = 0;
        for (; j + 3 <= end; j += 3) weight_gradient_taps<heads, 3>(from, to, out, in, i, j, s, sums);
        for (; j < end; ++j) weight_gradient_taps<heads, 1>(from, to, out, in, i, j, s, sums);
      }
    }
  }
  template <int heads, int columns>
  void weight_gradient_taps(int64_t from, int64_t to, int64_t out, int64_t in, int64_t i, int64_t j,
                            const Scratch& s, std::vector<Vector<T>>& sums) const {
    Vector<T> added[columns][heads] = {};
    const T* grads = s.padded(s.under, out, from);
    const T* values = s.padded(s.mixed, in, from - m.down - reach + i) - m.right - reach + j;
    for (int64_t t = from; t < to; ++t, grads += line, values += line) {
      for (int64_t x = s.firsts[t]; x < s.lasts[t]; x += lanes<T>) {
        // Twelve sums, three values and one gradient are the sixteen registers of AVX2.
        Vector<T> value[columns];
        for (int c = 0; c < columns; ++c) value[c] = load<Vector<T>>(values + x + c);
        for (int o = 0; o < heads; ++o) {
          const Vector<T> grad = load<Vector<T>>(grads + o * plane + x);
          for (int c = 0; c < columns; ++c) added[c][o] += value[c] * grad;
        }
      }
    }
    for (int c = 0; c < columns; ++c)
      for (int o = 0; o < heads; ++o)
        sums[((i * m.kernel_size + j + c) * m.heads + in) * m.heads + out + o] += added[c][o];
  }

  // Sums of all threads, in their order, to the parameters' layout.
  void reduce(const std::vector<Sums>& parts, const Gradients& g) const {
    const int64_t heads = m.heads, area = m.kernel_size * m.kernel_size;
    for (int64_t index = 0; index < area * heads * heads; ++index) {
      Vector<T> sum = {};
      for (const Sums& part : parts) sum += part.weight[index];
      const int64_t out = index % heads, in = index / heads % heads, tap = index / (heads * heads);
      static_cast<T*>(g.weight)[(out * heads + in) * area + tap] = total<T>(sum);
    }
    for (int64_t h = 0; h < heads; ++h) {
      Vector<T> sum = {};
      for (const Sums& part : parts) sum += part.bias[h];
      static_cast<T*>(g.bias)[h] = total<T>(sum);
    }
  }
};

}  // namespace ea

extern "C" {

// Null, or what went wrong.

const char* scratch_size_float(const Attention* a, int64_t* size) {
  return ea::message_of([&] { *size = ea::Worker<float>(*a).scratch_size(); });
}
const char* scratch_size_double(const Attention* a, int64_t* size) {
  return ea::message_of([&] { *size = ea::Worker<double>(*a).scratch_size(); });
}
const char* forward_float(const Attention* a, const Results* r) {
  return ea::message_of([&] { ea::Worker<float>(*a).forward(*r); });
}
const char* forward_double(const Attention* a, const Results* r) {
  return ea::message_of([&] { ea::Worker<double>(*a).forward(*r); });
}
const char* backward_float(const Attention* a, const Gradients* g) {
  return ea::message_of([&] { ea::Worker<float>(*a).backward(*g); });
}
const char* backward_double(const Attention* a, const Gradients* g) {
  return ea::message_of([&] { ea::Worker<double>(*a).backward(*g); });
}
}
