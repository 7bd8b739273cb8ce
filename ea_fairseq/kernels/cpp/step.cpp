// One new row of evolving attention for every hypothesis: what beam search computes at a step.
//
// Same equations as MapConvolution.step and LogitTransform.attend_step in ea_fairseq/attention/variants.

#include <vector>

#include "lines.h"

extern "C" {

// What the Python side passes; see fused_step.py. Null pointers stand for what is absent.
struct Step {
  int64_t batch, heads, src_len, head_dim, kernel_size, right, threads;
  double alpha, beta, scaling;
  Heads queries, output;
  Heads keys, values;        // by row, head and position
  const int64_t* rows;       // (batch, src_len): the row of each position; or null:
  int64_t hypotheses;        // this many neighbouring hypotheses share a row
  const uint8_t* visible;    // bool, or null: everything is visible
  int64_t visible_stride;
  const void* weight;        // (heads out, heads in, kernel_size, kernel_size)
  const void* bias;          // (heads)
  const void* carry;         // (batch, heads, src_len) or null
  const void* pending;       // (batch, 2 reach, heads, columns) or null before the first row
  int64_t columns;
  const uint8_t* rows_visible;  // bool, (batch, reach)
  void* new_pending;            // (batch, 2 reach, heads, src_len + 2 right)
  uint8_t* new_rows_visible;    // bool, (batch, reach)
  void *evolved, *probs;        // out: (batch, heads, src_len) or null
};
}

namespace ea {

template <typename T>
class StepWorker {
 public:
  explicit StepWorker(const Step& step)
      : m(step),
        reach((m.kernel_size - 1) / 2),
        left(reach + m.right),
        wide(m.src_len + 2 * m.right),
        width(whole_vectors(wide, std::max(lanes<T>, together))),
        line(left + width + m.kernel_size + lanes<T>),
        depth(whole_vectors(m.head_dim, lanes<T>)) {}

  void run() const {
    each_share(m.batch, m.threads, [&](int64_t, int64_t begin, int64_t end) {
      Scratch scratch(*this);
      for (int64_t n = begin; n < end; ++n) hypothesis(n, scratch);
    });
  }

 private:
  struct Scratch {
    explicit Scratch(const StepWorker& w)
        : visible(w.width), kept(w.width), queries(w.m.heads * w.depth),
          mixed(w.m.heads * w.line), sums(w.m.heads * w.width), evolved(w.width),
          probs(w.m.heads * w.width), outputs(w.m.heads * w.depth) {}
    std::vector<typename Lanes<T>::integer> visible, kept;
    std::vector<T> queries, mixed, sums, evolved, probs, outputs;  // mixed: A_in, zeros around it
  };

  const Step& m;
  const int64_t reach, left, wide, width, line, depth;
  static constexpr int64_t together = 4;       // positions at once
  static constexpr int64_t ahead_of_use = 16;  // positions

  const T* position(const Heads& kept, int64_t n, int64_t s) const {
    return row<T>(kept, m.rows ? m.rows[n * m.src_len + s] : n / m.hypotheses, 0, s);
  }
  int64_t map_line(int64_t n, int64_t h) const { return (n * m.heads + h) * m.src_len; }

  void hypothesis(int64_t n, Scratch& s) const {
    const uint8_t* visible = m.visible ? m.visible + n * m.visible_stride : nullptr;
    const bool any = !visible || std::memchr(visible, 1, m.src_len);
    // The row that the convolution's move puts here was `reach` rows back.
    const bool origin = reach == 0 ? any : m.rows_visible && m.rows_visible[n * reach];
    for (int64_t r = 0; r + 1 < reach; ++r)
      m.new_rows_visible[n * reach + r] = m.rows_visible ? m.rows_visible[n * reach + r + 1] : 0;
    if (reach > 0) m.new_rows_visible[n * reach + reach - 1] = any;

    for (int64_t x = 0; x < width; x += lanes<T>) {
      const auto seen = flags<T>(visible, x, m.src_len);
      store(s.visible.data() + x, seen);
      const auto kept = seen & flags<T>(visible, x - m.right, m.src_len);
      store(s.kept.data() + x, origin ? kept : Integers<T>{});
    }
    mix(n, s);
    for (int64_t ahead = 0; ahead < m.kernel_size; ++ahead) convolve(n, ahead, s);
    for (int64_t h = 0; h < m.heads; ++h) evolve(n, h, s);
    attend(n, s);
  }

  // A_in of all heads, 0 in hidden entries.
  void mix(int64_t n, Scratch& s) const {
    for (int64_t h = 0; h < m.heads; ++h) {
      const T* query = row<T>(m.queries, n, h, 0);
      T* scaled = s.queries.data() + h * depth;
      for (int64_t x = 0; x < m.head_dim; ++x) scaled[place(x)] = T(m.scaling) * query[x];
    }
    each_position(m.keys, n, [&](int64_t i, const T* const* keys) {
      for (int64_t h = 0; h < m.heads; ++h) {
        const T* query = s.queries.data() + h * depth;
        Vector<T> sums[together] = {};
        for (int64_t x = 0; x < depth; x += lanes<T>)
          for (int64_t k = 0; k < together; ++k)
            sums[k] += load<Vector<T>>(query + x) * part(keys[k] + h * m.keys.head_stride, x);
        for (int64_t k = 0; k < together; k += Square<T>::side)
          totals<T>(sums + k, &s.mixed[h * line + left + i + k]);
      }
    });
    for (int64_t h = 0; h < m.heads; ++h) {
      T* mixed = s.mixed.data() + h * line + left;
      if (m.carry) {
        const T* carry = static_cast<const T*>(m.carry) + map_line(n, h);
        for (int64_t i = 0; i < m.src_len; ++i) mixed[i] += T(m.alpha) * (carry[i] - mixed[i]);
      }
      const int64_t end = whole_vectors(m.src_len, together);
      for (int64_t i = 0; i < end; ++i) mixed[i] = s.visible[i] ? mixed[i] : T(0);
    }
  }

  // work(i, at): where all heads of `together` positions from i on are. The last position stands for
  // those beyond it, whose results have no use.
  template <typename Work>
  void each_position(const Heads& kept, int64_t n, Work work) const {
    const int64_t numbers = m.heads * kept.head_stride, last = m.src_len - 1;
    const T* at[together];
    for (int64_t i = 0; i < m.src_len; i += together) {
      for (int64_t k = 0; k < together; ++k) {
        // Which row comes next only the table knows, so memory is asked before its turn.
        const T* later = position(kept, n, std::min(i + k + ahead_of_use, last));
        for (int64_t x = 0; x < numbers; x += 64 / sizeof(T)) __builtin_prefetch(later + x);
        at[k] = position(kept, n, std::min(i + k, last));
      }
      work(i, at);
    }
  }

  // A vector of a head's numbers, those from x on; the last one ends with the head, so it has some
  // in common with the one before. Reading vectors in part takes several times as long where the
  // numbers come from memory.
  Vector<T> part(const T* head, int64_t x) const {
    if (m.head_dim < lanes<T>) return load_part(head, m.head_dim);
    return load<Vector<T>>(head + std::min(x, m.head_dim - lanes<T>));
  }
  // Where number x is in vectors that have nothing in common.
  int64_t place(int64_t x) const {
    return x < depth - lanes<T> ? x : x + depth - std::max(m.head_dim, lanes<T>);
  }

  // What this row adds to the one `ahead` of it. The sum for this very row is complete and goes to
  // s.sums; the others wait in new_pending.
  void convolve(int64_t n, int64_t ahead, Scratch& s) const {
    int64_t out = 0;
    for (; out + 4 <= m.heads; out += 4) convolve_heads<4>(n, ahead, out, s);
    for (; out < m.heads; ++out) convolve_heads<1>(n, ahead, out, s);
  }
  template <int outs>
  void convolve_heads(int64_t n, int64_t ahead, int64_t out, Scratch& s) const {
    const int64_t waiting = 2 * reach, area = m.kernel_size * m.kernel_size;
    const T* weights = static_cast<const T*>(m.weight) + out * m.heads * area +
                       (waiting - ahead) * m.kernel_size;
    const T* before = nullptr;
    if (m.pending && ahead < waiting)
      before = static_cast<const T*>(m.pending) +
               ((n * waiting + ahead) * m.heads + out) * m.columns;
    T* after = nullptr;
    if (ahead > 0)
      after = static_cast<T*>(m.new_pending) +
              ((n * waiting + ahead - 1) * m.heads + out) * wide;
    for (int64_t x = 0; x < width; x += lanes<T>) {
      Vector<T> sums[outs];
      for (int o = 0; o < outs; ++o)
        sums[o] = before && x < m.columns
                      ? load_part(before + o * m.columns + x, std::min(lanes<T>, m.columns - x))
                      : Vector<T>{};
      for (int64_t in = 0; in < m.heads; ++in) {
        const T* from = s.mixed.data() + in * line + x;
        for (int64_t j = 0; j < m.kernel_size; ++j) {
          const auto values = load<Vector<T>>(from + j);
          for (int o = 0; o < outs; ++o)
            sums[o] += weights[(o * m.heads + in) * area + j] * values;
        }
      }
      for (int o = 0; o < outs; ++o) {
        if (!after)
          store(s.sums.data() + (out + o) * width + x, sums[o]);
        else if (x < wide)
          store_part(after + o * wide + x, sums[o], std::min(lanes<T>, wide - x));
      }
    }
  }

  // Z and probabilities of one head.
  void evolve(int64_t n, int64_t h, Scratch& s) const {
    const T bias = static_cast<const T*>(m.bias)[h];
    const int64_t last = whole_vectors(m.src_len, lanes<T>);
    for (int64_t x = 0; x < last; x += lanes<T>) {
      const Vector<T> sum = load<Vector<T>>(s.sums.data() + h * width + x) + bias;
      const Vector<T> relu = sum < T(0) ? Vector<T>{} : sum;
      const Vector<T> term = load<Integers<T>>(s.kept.data() + x) ? relu : Vector<T>{};
      const Vector<T> mixed = load<Vector<T>>(s.mixed.data() + h * line + left + x);
      store(s.evolved.data() + x, mixed + T(m.beta) * (term - mixed));
    }
    T* probs = s.probs.data() + h * width;
    softmax_line(s.evolved.data(), s.visible.data(), probs, 0, last);
    if (m.evolved) std::copy_n(s.evolved.data(), m.src_len, static_cast<T*>(m.evolved) + map_line(n, h));
    if (m.probs) std::copy_n(probs, m.src_len, static_cast<T*>(m.probs) + map_line(n, h));
  }

  // The values of all heads, weighted.
  void attend(int64_t n, Scratch& s) const {
    std::fill(s.outputs.begin(), s.outputs.end(), T(0));
    each_position(m.values, n, [&](int64_t i, const T* const* values) {
      for (int64_t h = 0; h < m.heads; ++h) {
        const T* probs = s.probs.data() + h * width + i;
        T* output = s.outputs.data() + h * depth;
        for (int64_t x = 0; x < depth; x += lanes<T>) {
          auto sum = load<Vector<T>>(output + x);
          for (int64_t k = 0; k < together; ++k)
            sum += probs[k] * part(values[k] + h * m.values.head_stride, x);
          store(output + x, sum);
        }
      }
    });
    for (int64_t h = 0; h < m.heads; ++h) {
      T* output = row<T>(m.output, n, h, 0);
      const T* sums = s.outputs.data() + h * depth;
      for (int64_t x = 0; x < m.head_dim; ++x) output[x] = sums[place(x)];
    }
  }
};

}  // namespace ea

extern "C" {

// Null, or what went wrong.

const char* step_float(const Step* step) {
  return ea::message_of([&] { ea::StepWorker<float>(*step).run(); });
}
const char* step_double(const Step* step) {
  return ea::message_of([&] { ea::StepWorker<double>(*step).run(); });
}
}
