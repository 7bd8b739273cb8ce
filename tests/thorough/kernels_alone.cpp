// The compiled attention without Python: forward and backward against loops over the equations, for
// processors that are only emulated. Prints the largest difference; ends with 1 where it is large.

#include <cstdio>
#include <random>

#include "../../ea_fairseq/kernels/cpp/attention.cpp"
#include "../../ea_fairseq/kernels/cpp/linear.h"

namespace {

std::mt19937 generator(1);
double normal() { return std::normal_distribution<double>()(generator); }

// One attention with all that it reads and writes, in double.
struct Case {
  int64_t batch, heads, tgt_len, src_len, head_dim, size, down, right;
  bool triangular, carries;
  double alpha = 0.3, beta = 0.4, scaling = 0.5;
  std::vector<double> queries, keys, values, carry, weight, bias;
  std::vector<uint8_t> visible;

  Case(int64_t heads, int64_t tgt_len, int64_t src_len, int64_t size, bool causal)
      : batch(2), heads(heads), tgt_len(tgt_len), src_len(src_len), head_dim(5), size(size),
        down(causal ? (size - 1) / 2 : 0), right(down), triangular(causal), carries(!causal) {
    const auto fill = [](std::vector<double>& numbers, int64_t count) {
      for (int64_t i = 0; i < count; ++i) numbers.push_back(normal());
    };
    fill(queries, batch * heads * tgt_len * head_dim);
    fill(keys, batch * heads * src_len * head_dim);
    fill(values, batch * heads * src_len * head_dim);
    fill(carry, batch * heads * tgt_len * src_len);
    fill(weight, heads * heads * size * size);
    fill(bias, heads);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t t = 0; t < tgt_len; ++t)
        for (int64_t s = 0; s < src_len; ++s)
          visible.push_back((!causal || s <= t) && (n == 0 || s < (src_len + 1) / 2));
    for (int64_t index = 0; causal && index < int64_t(weight.size()); ++index)
      if (index % size > index / size % size) weight[index] = 0;
  }

  std::vector<std::vector<double>*> inputs() {
    return {&queries, &keys, &values, &carry, &weight, &bias};
  }
  bool sees(int64_t n, int64_t t, int64_t s) const {
    return t >= 0 && s >= 0 && t < tgt_len && s < src_len &&
           visible[(n * tgt_len + t) * src_len + s];
  }
  int64_t place(int64_t n, int64_t h, int64_t t, int64_t s) const {
    return ((n * heads + h) * tgt_len + t) * src_len + s;
  }

  // Output and Z, by loops.
  void expect(std::vector<double>& output, std::vector<double>& evolved) const {
    std::vector<double> mixed(carry.size(), 0.0);
    evolved.assign(carry.size(), 0.0);
    output.assign(queries.size(), 0.0);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < tgt_len; ++t)
          for (int64_t s = 0; s < src_len; ++s) {
            if (!sees(n, t, s)) continue;
            double logit = 0;
            for (int64_t x = 0; x < head_dim; ++x)
              logit += scaling * queries[((n * heads + h) * tgt_len + t) * head_dim + x] *
                       keys[((n * heads + h) * src_len + s) * head_dim + x];
            const int64_t here = place(n, h, t, s);
            mixed[here] = carries ? alpha * carry[here] + (1 - alpha) * logit : logit;
          }
    const int64_t reach = (size - 1) / 2;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < tgt_len; ++t) {
          double largest = -INFINITY, sum = 0;
          for (int64_t s = 0; s < src_len; ++s) {
            if (!sees(n, t, s)) continue;
            double term = bias[h];
            for (int64_t in = 0; in < heads; ++in)
              for (int64_t i = 0; i < size; ++i)
                for (int64_t j = 0; j < size; ++j) {
                  const int64_t row = t - down - reach + i, column = s - right - reach + j;
                  if (sees(n, row, column))
                    term += weight[((h * heads + in) * size + i) * size + j] *
                            mixed[place(n, in, row, column)];
                }
            term = sees(n, t - down, s - right) ? std::max(term, 0.0) : 0;
            const int64_t here = place(n, h, t, s);
            evolved[here] = beta * term + (1 - beta) * mixed[here];
            largest = std::max(largest, evolved[here]);
          }
          for (int64_t s = 0; s < src_len; ++s)
            if (sees(n, t, s)) sum += std::exp(evolved[place(n, h, t, s)] - largest);
          for (int64_t s = 0; s < src_len; ++s)
            for (int64_t x = 0; x < head_dim && sees(n, t, s); ++x)
              output[((n * heads + h) * tgt_len + t) * head_dim + x] +=
                  std::exp(evolved[place(n, h, t, s)] - largest) / sum *
                  values[((n * heads + h) * src_len + s) * head_dim + x];
        }
  }
};

template <typename T>
std::vector<T> as(const std::vector<double>& numbers) {
  return {numbers.begin(), numbers.end()};
}
void call(const char* message) {
  if (message) std::printf("error: %s\n", message), std::exit(1);
}
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, scale = 1;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i])), scale = std::max(scale, std::abs(b[i]));
  return worst / scale;
}

// What the library computes, in T; gradients of sum(output * of_output) + sum(Z * of_evolved).
template <typename T>
struct Compiled {
  std::vector<T> queries, keys, values, carry, weight, bias, output, evolved, scratch;
  std::vector<T> of_output, of_evolved;
  std::vector<std::vector<T>> grads;

  Compiled(Case& c, const std::vector<double>& by_output, const std::vector<double>& by_evolved)
      : queries(as<T>(c.queries)), keys(as<T>(c.keys)), values(as<T>(c.values)),
        carry(as<T>(c.carry)), weight(as<T>(c.weight)), bias(as<T>(c.bias)),
        output(c.queries.size()), evolved(c.carry.size()), of_output(as<T>(by_output)),
        of_evolved(as<T>(by_evolved)) {
    for (const auto* input : c.inputs()) grads.emplace_back(input->size());
    const auto heads = [&](std::vector<T>& numbers, int64_t length) {
      return Heads{numbers.data(), c.heads * length * c.head_dim, length * c.head_dim, c.head_dim};
    };
    Attention a = {c.batch, c.heads, c.tgt_len, c.src_len, c.head_dim, c.size, c.down, c.right,
                   c.triangular, 1, c.alpha, c.beta, c.scaling, heads(queries, c.tgt_len),
                   heads(keys, c.src_len), heads(values, c.src_len), c.visible.data(),
                   c.tgt_len * c.src_len, c.src_len, weight.data(), bias.data(),
                   c.carries ? carry.data() : nullptr, nullptr, nullptr};
    constexpr bool single = sizeof(T) == 4;
    int64_t count = 0;
    call((single ? scratch_size_float : scratch_size_double)(&a, &count));
    scratch.resize(count);
    a.scratch = scratch.data();
    const Results r = {heads(output, c.tgt_len), evolved.data(), nullptr};
    call((single ? forward_float : forward_double)(&a, &r));
    const Gradients g = {heads(of_output, c.tgt_len), of_evolved.data(), nullptr,
                         heads(grads[0], c.tgt_len), heads(grads[1], c.src_len),
                         heads(grads[2], c.src_len), c.carries ? grads[3].data() : nullptr,
                         grads[4].data(), grads[5].data()};
    call((single ? backward_float : backward_double)(&a, &g));
  }
};

// The largest relative difference of values and gradients.
double compare(Case c) {
  std::vector<double> output, evolved;
  c.expect(output, evolved);
  std::vector<double> by_output(output.size()), by_evolved(evolved.size());
  for (double& x : by_output) x = normal();
  for (double& x : by_evolved) x = normal();
  Compiled<double> exact(c, by_output, by_evolved);
  Compiled<float> single(c, by_output, by_evolved);
  // float's rounding counts as double's.
  double worst = difference(exact.output, output);
  worst = std::max(worst, difference(exact.evolved, evolved));
  worst = std::max(worst, 1e-8 * difference({single.output.begin(), single.output.end()}, output));
  for (size_t i = 0; i < single.grads.size(); ++i)
    worst = std::max(worst, 1e-8 * difference({single.grads[i].begin(), single.grads[i].end()},
                                              exact.grads[i]));
  // Along a random direction the loss grows as its gradients say.
  const auto loss = [&] {
    c.expect(output, evolved);
    double sum = 0;
    for (size_t i = 0; i < output.size(); ++i) sum += output[i] * by_output[i];
    for (size_t i = 0; i < evolved.size(); ++i)
      if (c.visible[i / (c.heads * c.tgt_len * c.src_len) * c.tgt_len * c.src_len +
                    i % (c.tgt_len * c.src_len)])
        sum += evolved[i] * by_evolved[i];
    return sum;
  };
  const double step = 1e-6;
  for (size_t which = 0; which < c.inputs().size(); ++which) {
    std::vector<double>& input = *c.inputs()[which];
    if (which == 3 && !c.carries) continue;
    std::vector<double> direction(input.size()), before = input;
    double expected = 0;
    for (size_t i = 0; i < input.size(); ++i) {
      const bool cut = which == 4 && c.triangular &&
                       int64_t(i) % c.size > int64_t(i) / c.size % c.size;
      direction[i] = cut ? 0 : normal();
      expected += direction[i] * exact.grads[which][i];
    }
    const auto at = [&](double far) {
      for (size_t i = 0; i < input.size(); ++i) input[i] = before[i] + far * direction[i];
      return loss();
    };
    const double found = (at(step) - at(-step)) / (2 * step);
    input = before;
    // A difference quotient is exact to some six digits.
    worst = std::max(worst, 1e-8 * std::abs(found - expected) / (1 + std::abs(expected)));
  }
  return worst;
}

// Products of bytes are integers: exact.
bool bytes_are_exact() {
  std::uniform_int_distribution<int> bytes(0, 255);
  for (int turn = 0; turn < 1000; ++turn) {
    constexpr int64_t count = ea::lanes<float>;
    int8_t weights[count * 4];
    uint8_t four[4];
    const bool extreme = turn == 0;
    for (int8_t& x : weights) x = extreme ? -127 : std::max(-127, bytes(generator) - 128);
    for (uint8_t& x : four) x = extreme ? 255 : bytes(generator);
    const ea::ByteProducts products(ea::load<ea::Integers<float>>(weights));
    const auto sums = products.add_to(ea::Integers<float>{} + turn, ea::load<int32_t>(four));
    for (int64_t lane = 0; lane < count; ++lane) {
      int32_t expected = turn;
      for (int i = 0; i < 4; ++i) expected += weights[lane * 4 + i] * four[i];
      if (sums[lane] != expected) return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  double worst = 0;
  for (int64_t heads : {1, 4, 5})
    for (int64_t size : {1, 3, 5})
      for (const auto& [tgt_len, src_len] : {std::pair{1, 1}, {3, 7}, {9, 18}, {17, 17}, {5, 33}}) {
        worst = std::max(worst, compare(Case(heads, tgt_len, src_len, size, false)));
        if (tgt_len == src_len)
          worst = std::max(worst, compare(Case(heads, tgt_len, src_len, size, true)));
      }
  const bool exact = bytes_are_exact();
  std::printf("vectors of %d bytes: largest difference %.1e, bytes %s\n", ea::vector_bytes, worst,
              exact ? "exact" : "wrong");
  return !(worst < 1e-13 && exact);
}
