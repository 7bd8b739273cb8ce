// One new row of evolving attention for every hypothesis: what beam search computes at a step.
//
// Same equations as MapConvolution.step and LogitTransform.attend_step in ea_fairseq/variants.

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
        width(whole_vectors(wide, lanes<T>)),
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
        : visible(w.width), kept(w.width), query(w.depth), mixed(w.m.heads * w.line),
          sums(w.m.heads * w.width), evolved(w.width), probs(w.width) {}
    std::vector<typename Lanes<T>::integer> visible, kept;
    std::vector<T> query, mixed, sums, evolved, probs;  // mixed: A_in, zeros around it
  };

  const Step& m;
  const int64_t reach, left, wide, width, line, depth;

  const T* position(const Heads& heads, int64_t n, int64_t h, int64_t s) const {
    return row<T>(heads, m.rows ? m.rows[n * m.src_len + s] : n / m.hypotheses, h, s);
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
    for (int64_t h = 0; h < m.heads; ++h) mix(n, h, s);
    for (int64_t ahead = 0; ahead < m.kernel_size; ++ahead) convolve(n, ahead, s);
    for (int64_t h = 0; h < m.heads; ++h) attend(n, h, s);
  }

  // A_in of one head, 0 in hidden entries.
  void mix(int64_t n, int64_t h, Scratch& s) const {
    const T* query = row<T>(m.queries, n, h, 0);
    for (int64_t x = 0; x < depth; x += lanes<T>)
      store(s.query.data() + x, T(m.scaling) * load_part<Vector<T>>(query + x, rest(x)));
    T* mixed = s.mixed.data() + h * line + left;
    for (int64_t i = 0; i < m.src_len; ++i) {
      const T* key = position(m.keys, n, h, i);
      Vector<T> sum = {};
      for (int64_t x = 0; x < depth; x += lanes<T>)
        sum += load<Vector<T>>(s.query.data() + x) * load_part<Vector<T>>(key + x, rest(x));
      mixed[i] = total<T>(sum);
    }
    if (m.carry) {
      const T* carry = static_cast<const T*>(m.carry) + map_line(n, h);
      for (int64_t i = 0; i < m.src_len; ++i) mixed[i] += T(m.alpha) * (carry[i] - mixed[i]);
    }
    for (int64_t i = 0; i < m.src_len; ++i) mixed[i] = s.visible[i] ? mixed[i] : T(0);
  }
  int64_t rest(int64_t x) const { return std::min(lanes<T>, m.head_dim - x); }

  // What this row adds to the one `ahead` of it. The sum for this very row is complete and goes to
  // s.sums; the others wait in new_pending.
  void convolve(int64_t n, int64_t ahead, Scratch& s) const {
    const T* weights = static_cast<const T*>(m.weight);
    const int64_t waiting = 2 * reach;
    for (int64_t out = 0; out < m.heads; ++out) {
      const T* before = nullptr;
      if (m.pending && ahead < waiting)
        before = static_cast<const T*>(m.pending) +
                 ((n * waiting + ahead) * m.heads + out) * m.columns;
      T* after = nullptr;
      if (ahead > 0)
        after = static_cast<T*>(m.new_pending) +
                ((n * waiting + ahead - 1) * m.heads + out) * wide;
      for (int64_t x = 0; x < width; x += lanes<T>) {
        Vector<T> sum = {};
        if (before && x < m.columns)
          sum = load_part<Vector<T>>(before + x, std::min(lanes<T>, m.columns - x));
        for (int64_t in = 0; in < m.heads; ++in) {
          const T* tap = weights + ((out * m.heads + in) * m.kernel_size + waiting - ahead) *
                                       m.kernel_size;
          const T* from = s.mixed.data() + in * line + x;
          for (int64_t j = 0; j < m.kernel_size; ++j) sum += tap[j] * load<Vector<T>>(from + j);
        }
        if (after)
          store_part(after + x, sum, std::min(lanes<T>, wide - x));
        else
          store(s.sums.data() + out * width + x, sum);
      }
    }
  }

  void attend(int64_t n, int64_t h, Scratch& s) const {
    const T bias = static_cast<const T*>(m.bias)[h];
    const int64_t last = whole_vectors(m.src_len, lanes<T>);
    for (int64_t x = 0; x < last; x += lanes<T>) {
      const Vector<T> sum = load<Vector<T>>(s.sums.data() + h * width + x) + bias;
      const Vector<T> relu = sum < T(0) ? Vector<T>{} : sum;
      const Vector<T> term = load<Integers<T>>(s.kept.data() + x) ? relu : Vector<T>{};
      const Vector<T> mixed = load<Vector<T>>(s.mixed.data() + h * line + left + x);
      store(s.evolved.data() + x, mixed + T(m.beta) * (term - mixed));
    }
    softmax_line(s.evolved.data(), s.visible.data(), s.probs.data(), 0, last);
    if (m.evolved) std::copy_n(s.evolved.data(), m.src_len, static_cast<T*>(m.evolved) + map_line(n, h));
    if (m.probs) std::copy_n(s.probs.data(), m.src_len, static_cast<T*>(m.probs) + map_line(n, h));
    T* output = row<T>(m.output, n, h, 0);
    for (int64_t x = 0; x < depth; x += lanes<T>) {
      Vector<T> sum = {};
      for (int64_t i = 0; i < m.src_len; ++i)
        sum += s.probs[i] * load_part<Vector<T>>(position(m.values, n, h, i) + x, rest(x));
      store_part(output + x, sum, rest(x));
    }
  }
};

}  // namespace ea

extern "C" {

void step_float(const Step* step) { ea::StepWorker<float>(*step).run(); }
void step_double(const Step* step) { ea::StepWorker<double>(*step).run(); }
}
