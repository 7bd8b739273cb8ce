// Evolving attention's maps on the CPU: mix, mask, convolve, softmax, and their gradients.
//
// Same equations as ea_fairseq/logits (evolving.py, conv.py), in two sweeps over the rows of the
// maps instead of a dozen over whole tensors; float and double. The gradients are computed from
// recomputed maps, so that training keeps none.
//
// All maps are contiguous, (batch, heads, tgt_len, src_len). `row` below counts (batch, target)
// pairs; a row of a map has one line per head. Lines in padded scratch are followed by zeros, so
// that loops over whole vectors may run past the end of a line.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int vector_bytes = 64;

template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float vector __attribute__((vector_size(vector_bytes)));
  typedef int32_t integers __attribute__((vector_size(vector_bytes)));
  typedef int32_t integer;
};
template <>
struct Lanes<double> {
  typedef double vector __attribute__((vector_size(vector_bytes)));
  typedef int64_t integers __attribute__((vector_size(vector_bytes)));
  typedef int64_t integer;
};
template <typename T>
using Vector = typename Lanes<T>::vector;
template <typename T>
using Integers = typename Lanes<T>::integers;
template <typename T>
constexpr int64_t lanes = vector_bytes / sizeof(T);

template <typename V, typename P>
inline V load(const P* from) {
  V vector;
  std::memcpy(&vector, from, sizeof(V));
  return vector;
}
template <typename V, typename P>
inline void store(P* to, V vector) {
  std::memcpy(to, &vector, sizeof(V));
}

// exp(x) for x <= 0, to the last bits: x = n log(2) + r, exp(r) by its Taylor polynomial.
inline Vector<float> exponential(Vector<float> x) {
  const Vector<float> lowest = Vector<float>{} - 87.0f;
  x = x < lowest ? lowest : x;
  const float round = 12582912.0f;  // 1.5 * 2^23: adding it drops the fraction
  const Vector<float> n = (x * 1.44269504088896341f + round) - round;
  const Vector<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector<float> sum = r * (1.0f / 5040) + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const auto exponent = (__builtin_convertvector(n, Integers<float>) + 127) << 23;
  return sum * load<Vector<float>>(&exponent);
}
inline Vector<double> exponential(Vector<double> x) {
  for (int lane = 0; lane < lanes<double>; ++lane) x[lane] = std::exp(x[lane]);
  return x;
}

template <typename V>
inline auto total(V vector) {
  auto sum = vector[0];
  for (size_t lane = 1; lane < sizeof(V) / sizeof(sum); ++lane) sum += vector[lane];
  return sum;
}

int64_t whole_vectors(int64_t length, int64_t lane_count) {
  return (length + lane_count - 1) / lane_count * lane_count;
}

}  // namespace

extern "C" {

// What the Python side passes; see fused_attention.py. Null pointers stand for what is absent.
struct Maps {
  int64_t batch, heads, tgt_len, src_len;
  int64_t kernel_size, down, right, lower_triangular;
  double alpha, beta;
  const uint8_t* visible;  // bool, or null: everything is visible
  int64_t visible_batch_stride, visible_row_stride;
  const void* weight;      // (heads out, heads in, kernel_size, kernel_size)
  const void* bias;        // (heads)
  const void* carry;       // or null: the first layer, A_in = logits
  void* logits;            // products of queries and keys; becomes the probabilities
  void* evolved;           // out: Z, or null
  void* padded;            // scratch for A_in, padded_size() numbers
  int64_t threads;
};
struct Gradients {
  void* probs;             // in: of the probabilities; out: of the products of queries and keys
  const void* evolved;     // of Z, or null
  void* carry;             // out: of the carry, or null
  void* weight;            // out
  void* bias;              // out
  void* padded;            // scratch for the convolution's gradient, padded_size() numbers
};
}

namespace {

template <typename T>
class Rows {
 public:
  explicit Rows(const Maps& maps)
      : m(maps),
        reach((maps.kernel_size - 1) / 2),
        border(2 * reach),
        width(whole_vectors(maps.src_len, lanes<T>)),
        line(border + width + border + lanes<T>),
        plane((maps.tgt_len + 2 * border) * line),
        alpha(static_cast<T>(maps.alpha)),
        beta(static_cast<T>(maps.beta)) {}

  int64_t padded_size() const { return m.batch * m.heads * plane; }

  void forward() const {
    const std::vector<T> taps = forward_taps();
    clear_border(static_cast<T*>(m.padded));
    each_row([&](int64_t n, int64_t t, Scratch&) { mix(n, t); });
    each_row([&](int64_t n, int64_t t, Scratch& s) {
      evolve(n, t, taps, s);
      if (m.evolved) {
        for (int64_t h = 0; h < m.heads; ++h)
          std::copy_n(s.evolved.data() + h * width, m.src_len, at(m.evolved, n, h, t));
      }
      for (int64_t h = 0; h < m.heads; ++h) {
        softmax(s.evolved.data() + h * width, s);
        std::copy_n(s.probs.data(), m.src_len, at(m.logits, n, h, t));
      }
    });
  }

  void backward(const Gradients& g) const {
    const std::vector<T> taps = forward_taps(), transposed = transposed_taps();
    const int64_t tap_count = m.heads * m.heads * m.kernel_size * m.kernel_size;
    std::vector<std::vector<Vector<T>>> weight(m.threads), bias(m.threads);
    for (auto& sums : weight) sums.assign(tap_count, Vector<T>{});
    for (auto& sums : bias) sums.assign(m.heads, Vector<T>{});

    clear_border(static_cast<T*>(m.padded));
    clear_border(static_cast<T*>(g.padded));
    each_row([&](int64_t n, int64_t t, Scratch&) { mix(n, t); });
    each_row([&](int64_t n, int64_t t, Scratch& s) {
      evolve(n, t, taps, s);
      for (int64_t h = 0; h < m.heads; ++h) {
        softmax(s.evolved.data() + h * width, s);
        T* grad = at(g.probs, n, h, t);
        std::copy_n(s.probs.data(), m.src_len, at(m.logits, n, h, t));
        evolved_gradient(grad, g.evolved ? at(g.evolved, n, h, t) : nullptr, s);
        convolution_gradient(n, h, t, grad, static_cast<T*>(g.padded), s);
      }
      add_weight_gradient(n, t, static_cast<const T*>(g.padded), weight[s.thread], s);
      for (int64_t h = 0; h < m.heads; ++h)
        for (int64_t x = s.first; x < s.last; x += lanes<T>)
          bias[s.thread][h] += load<Vector<T>>(padded_at(g.padded, n, h, t) + x);
    });
    each_row([&](int64_t n, int64_t t, Scratch& s) { mixed_gradient(n, t, transposed, g, s); });

    const int64_t heads = m.heads, size = m.kernel_size * m.kernel_size;
    reduce(weight, static_cast<T*>(g.weight), [&](int64_t index) {
      const int64_t out = index % heads, in = index / heads % heads, tap = index / (heads * heads);
      return (out * heads + in) * size + tap;
    });
    reduce(bias, static_cast<T*>(g.bias), [](int64_t index) { return index; });
  }

 private:
  // What one thread needs for one row.
  struct Scratch {
    Scratch(int64_t heads, int64_t width, int64_t thread)
        : visible(width), kept(width), term(heads * width), evolved(heads * width), probs(width),
          thread(thread) {}
    std::vector<typename Lanes<T>::integer> visible, kept;  // -1 or 0 for every column
    std::vector<T> term, evolved, probs;
    int64_t first = 0, last = 0;  // columns outside are hidden; multiples of a vector
    int64_t thread;
  };

  const Maps& m;
  const int64_t reach, border, width, line, plane;
  const T alpha, beta;

  // Rows in equal, consecutive shares, so that sums do not depend on timing.
  template <typename Task>
  void each_row(Task task) const {
    const int64_t rows = m.batch * m.tgt_len;
#pragma omp parallel for schedule(static, 1) num_threads(m.threads) if (m.threads > 1)
    for (int64_t thread = 0; thread < m.threads; ++thread) {
      Scratch scratch(m.heads, width, thread);
      for (int64_t r = rows * thread / m.threads; r < rows * (thread + 1) / m.threads; ++r)
        task(r / m.tgt_len, r % m.tgt_len, scratch);
    }
  }

  template <typename P>
  auto at(P* map, int64_t n, int64_t h, int64_t t) const {
    using Element = std::conditional_t<std::is_const_v<P>, const T, T>;
    return static_cast<Element*>(map) + ((n * m.heads + h) * m.tgt_len + t) * m.src_len;
  }
  T* padded_at(void* padded, int64_t n, int64_t h, int64_t t) const {
    return static_cast<T*>(padded) + (n * m.heads + h) * plane + (t + border) * line + border;
  }
  const uint8_t* visible_row(int64_t n, int64_t t) const {
    return m.visible + n * m.visible_batch_stride + t * m.visible_row_stride;
  }

  // Rows above and below each padded map; lines clear what surrounds them when they are written.
  void clear_border(T* padded) const {
    for (int64_t map = 0; map < m.batch * m.heads; ++map, padded += plane) {
      std::fill_n(padded, border * line, T(0));
      std::fill_n(padded + (border + m.tgt_len) * line, border * line, T(0));
    }
  }

  // A_in = alpha * carry + (1 - alpha) * logits, 0 in hidden entries.
  void mix(int64_t n, int64_t t) const {
    for (int64_t h = 0; h < m.heads; ++h) {
      T* mixed = padded_at(m.padded, n, h, t);
      const T* logits = at(const_cast<const void*>(m.logits), n, h, t);
      std::fill_n(mixed - border, border, T(0));
      std::fill_n(mixed + m.src_len, line - border - m.src_len, T(0));
      if (m.carry) {
        const T* carry = at(m.carry, n, h, t);
        for (int64_t x = 0; x < m.src_len; ++x) mixed[x] = logits[x] + alpha * (carry[x] - logits[x]);
      } else {
        std::copy_n(logits, m.src_len, mixed);
      }
      if (m.visible) {
        const uint8_t* visible = visible_row(n, t);
        for (int64_t x = 0; x < m.src_len; ++x) mixed[x] = visible[x] ? mixed[x] : T(0);
      }
    }
  }

  // Which columns of a row are visible, and which of those the convolution's term reaches: those
  // whose origin, `down` rows up and `right` columns to the left, is in the map and visible too.
  void find_visible(int64_t n, int64_t t, Scratch& s) const {
    for (int64_t x = 0; x < width; ++x) s.visible[x] = s.kept[x] = 0;
    const int64_t right = m.right;
    s.first = 0;
    s.last = width;
    if (!m.visible) {
      std::fill_n(s.visible.begin(), m.src_len, -1);
      if (t >= m.down) std::fill(s.kept.begin() + std::min(right, m.src_len), s.kept.begin() + m.src_len, -1);
      return;
    }
    const uint8_t* visible = visible_row(n, t);
    int64_t from = 0, to = m.src_len;
    while (from < to && !visible[from]) ++from;
    while (to > from && !visible[to - 1]) --to;
    for (int64_t x = from; x < to; ++x) s.visible[x] = -static_cast<int>(visible[x]);
    s.first = from / lanes<T> * lanes<T>;
    s.last = from == to ? s.first : whole_vectors(to, lanes<T>);
    if (t < m.down) return;
    const uint8_t* origin = visible_row(n, t - m.down);
    for (int64_t x = std::max(from, right); x < to; ++x)
      s.kept[x] = s.visible[x] & -static_cast<int>(origin[x - right]);
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
  // The kernel's corner above the diagonal is 0 in the decoder, in both directions.
  bool cut(int64_t i, int64_t j, bool transposed) const {
    return m.lower_triangular && (transposed ? j < i : j > i);
  }

  // The convolution of one row: `corner` is where the kernel's first row and column lie for x = 0.
  void convolve(const T* corner, const std::vector<T>& taps, bool transposed, Scratch& s) const {
    int64_t out = 0;
    for (; out + 4 <= m.heads; out += 4) convolve_heads<4>(corner, taps, transposed, out, s);
    for (; out < m.heads; ++out) convolve_heads<1>(corner, taps, transposed, out, s);
  }
  template <int count>
  void convolve_heads(
      const T* corner, const std::vector<T>& taps, bool transposed, int64_t out, Scratch& s) const {
    for (int64_t x = s.first; x < s.last; x += lanes<T>) {
      Vector<T> sums[count] = {};
      for (int64_t i = 0; i < m.kernel_size; ++i) {
        for (int64_t j = 0; j < m.kernel_size; ++j) {
          if (cut(i, j, transposed)) continue;
          const T* tap = taps.data() + (i * m.kernel_size + j) * m.heads * m.heads + out;
          const T* from = corner + i * line + j + x;
          for (int64_t in = 0; in < m.heads; ++in, tap += m.heads, from += plane) {
            const Vector<T> values = load<Vector<T>>(from);
            for (int o = 0; o < count; ++o) sums[o] += values * tap[o];
          }
        }
      }
      for (int o = 0; o < count; ++o) store(s.term.data() + (out + o) * width + x, sums[o]);
    }
  }

  // Z = beta * relu(conv(A_in)) + (1 - beta) * A_in; s.term keeps what is under the relu.
  void evolve(int64_t n, int64_t t, const std::vector<T>& taps, Scratch& s) const {
    find_visible(n, t, s);
    const T* corner = padded_at(m.padded, n, 0, t - m.down - reach) - m.right - reach;
    convolve(corner, taps, false, s);
    for (int64_t h = 0; h < m.heads; ++h) {
      T* term = s.term.data() + h * width;
      T* evolved = s.evolved.data() + h * width;
      const T bias = static_cast<const T*>(m.bias)[h];
      const T* mixed = padded_at(m.padded, n, h, t);
      std::fill(evolved, evolved + s.first, T(0));
      std::fill(evolved + s.last, evolved + width, T(0));
      for (int64_t x = s.first; x < s.last; ++x) {
        const T sum = s.kept[x] ? term[x] + bias : T(0);
        term[x] = sum;
        evolved[x] = mixed[x] + beta * ((sum < T(0) ? T(0) : sum) - mixed[x]);
      }
    }
  }

  // s.probs: softmax of one line over its visible columns, 0 where there is none.
  void softmax(const T* evolved, Scratch& s) const {
    const Vector<T> lowest = Vector<T>{} - INFINITY;
    Vector<T> highest = lowest;
    for (int64_t x = s.first; x < s.last; x += lanes<T>) {
      const auto seen = load<Integers<T>>(s.visible.data() + x);
      const Vector<T> values = seen ? load<Vector<T>>(evolved + x) : lowest;
      highest = highest > values ? highest : values;
    }
    T maximum = highest[0];
    for (int lane = 1; lane < lanes<T>; ++lane) maximum = std::max(maximum, T(highest[lane]));
    Vector<T> sums = {};
    for (int64_t x = s.first; x < s.last; x += lanes<T>) {
      const auto seen = load<Integers<T>>(s.visible.data() + x);
      const Vector<T> power = exponential(load<Vector<T>>(evolved + x) - maximum);
      const Vector<T> values = seen ? power : Vector<T>{};
      store(s.probs.data() + x, values);
      sums += values;
    }
    const T scale = T(1) / total(sums);
    std::fill(s.probs.begin(), s.probs.begin() + s.first, T(0));
    std::fill(s.probs.begin() + s.last, s.probs.end(), T(0));
    for (int64_t x = s.first; x < s.last; ++x) s.probs[x] *= scale;
  }

  // grad: from the probabilities' to Z's, the carry's share included.
  void evolved_gradient(T* grad, const T* carried, const Scratch& s) const {
    const int64_t last = std::min(s.last, m.src_len);
    std::fill(grad, grad + std::min(s.first, m.src_len), T(0));
    std::fill(grad + std::max(last, std::min(s.first, m.src_len)), grad + m.src_len, T(0));
    T dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t x = s.first; x < last; ++x) dot += grad[x] * s.probs[x];
    if (carried) {
      for (int64_t x = s.first; x < last; ++x)
        grad[x] = s.visible[x] ? s.probs[x] * (grad[x] - dot) + carried[x] : T(0);
    } else {
      for (int64_t x = s.first; x < last; ++x) grad[x] = s.probs[x] * (grad[x] - dot);
    }
  }

  // The gradient under the relu, into its padded map.
  void convolution_gradient(
      int64_t n, int64_t h, int64_t t, const T* grad, T* padded, const Scratch& s) const {
    T* under = padded_at(padded, n, h, t);
    const T* term = s.term.data() + h * width;
    const int64_t first = std::min(s.first, m.src_len), last = std::min(s.last, m.src_len);
    std::fill(under - border, under + first, T(0));
    for (int64_t x = first; x < last; ++x)
      under[x] = s.kept[x] && term[x] > T(0) ? beta * grad[x] : T(0);
    std::fill(under + std::max(first, last), under + line - border, T(0));
  }

  // sums[row][column][in][out] += gradient under the relu times what the tap reads.
  void add_weight_gradient(
      int64_t n, int64_t t, const T* padded, std::vector<Vector<T>>& sums, const Scratch& s) const {
    int64_t out = 0;
    for (; out + 4 <= m.heads; out += 4) add_heads<4>(n, t, padded, out, sums, s);
    for (; out < m.heads; ++out) add_heads<1>(n, t, padded, out, sums, s);
  }
  template <int count>
  void add_heads(int64_t n, int64_t t, const T* padded, int64_t out, std::vector<Vector<T>>& sums,
                 const Scratch& s) const {
    const T* under = padded_at(const_cast<T*>(padded), n, out, t);
    const T* corner = padded_at(m.padded, n, 0, t - m.down - reach) - m.right - reach;
    for (int64_t i = 0; i < m.kernel_size; ++i) {
      for (int64_t j = 0; j < m.kernel_size; ++j) {
        if (cut(i, j, false)) continue;
        for (int64_t in = 0; in < m.heads; ++in) {
          Vector<T>* sum =
              sums.data() + ((i * m.kernel_size + j) * m.heads + in) * m.heads + out;
          const T* from = corner + in * plane + i * line + j;
          Vector<T> added[count];
          for (int o = 0; o < count; ++o) added[o] = sum[o];
          for (int64_t x = s.first; x < s.last; x += lanes<T>) {
            const Vector<T> values = load<Vector<T>>(from + x);
            for (int o = 0; o < count; ++o)
              added[o] += values * load<Vector<T>>(under + o * plane + x);
          }
          for (int o = 0; o < count; ++o) sum[o] = added[o];
        }
      }
    }
  }

  // From Z's gradient to that of A_in, and from there to the products' and the carry's.
  void mixed_gradient(
      int64_t n, int64_t t, const std::vector<T>& transposed, const Gradients& g, Scratch& s) const {
    find_visible(n, t, s);
    const T* corner = padded_at(g.padded, n, 0, t + m.down - reach) + m.right - reach;
    convolve(corner, transposed, true, s);
    const T of_logits = m.carry ? T(1) - alpha : T(1);
    const int64_t first = std::min(s.first, m.src_len), last = std::min(s.last, m.src_len);
    for (int64_t h = 0; h < m.heads; ++h) {
      T* grad = at(g.probs, n, h, t);
      const T* term = s.term.data() + h * width;
      if (g.carry) {
        T* carry = at(g.carry, n, h, t);
        std::fill_n(carry, m.src_len, T(0));
        for (int64_t x = first; x < last; ++x)
          carry[x] = s.visible[x] ? alpha * ((T(1) - beta) * grad[x] + term[x]) : T(0);
      }
      for (int64_t x = first; x < last; ++x)
        grad[x] = s.visible[x] ? of_logits * ((T(1) - beta) * grad[x] + term[x]) : T(0);
    }
  }

  // Sums of all threads, in their order.
  template <typename Position>
  void reduce(const std::vector<std::vector<Vector<T>>>& sums, T* result, Position to) const {
    for (size_t index = 0; index < sums[0].size(); ++index) {
      Vector<T> sum = {};
      for (const auto& part : sums) sum += part[index];
      result[to(index)] = total(sum);
    }
  }
};

}  // namespace

extern "C" {

int64_t padded_size_float(const Maps* maps) { return Rows<float>(*maps).padded_size(); }
int64_t padded_size_double(const Maps* maps) { return Rows<double>(*maps).padded_size(); }
void forward_float(const Maps* maps) { Rows<float>(*maps).forward(); }
void forward_double(const Maps* maps) { Rows<double>(*maps).forward(); }
void backward_float(const Maps* maps, const Gradients* grads) { Rows<float>(*maps).backward(*grads); }
void backward_double(const Maps* maps, const Gradients* grads) {
  Rows<double>(*maps).backward(*grads);
}
}
