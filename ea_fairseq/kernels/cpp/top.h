// The most probable of a row's tokens, out of logits that come piece by piece.
#pragma once

#include <algorithm>

#include "vectors.h"

namespace ea {

// Keeps the largest logits and the logarithm of the sum of all exponentials: log-probabilities are
// computed of what can win alone.
class Top {
 public:
  // best, token: (most), written by what follows.
  void begin(int64_t most, float* best, int64_t* token) {
    most_ = most, best_ = best, token_ = token;
    maximum_ = -INFINITY, sum_ = 0;
    forget();
  }

  // The sum's part of logits, whole vectors of which -inf fills up the last.
  void add_to_sum(const float* logits, int64_t count) {
    Vector<float> highest = load<Vector<float>>(logits);
    for (int64_t x = lanes<float>; x < count; x += lanes<float>) {
      const auto values = load<Vector<float>>(logits + x);
      highest = highest > values ? highest : values;
    }
    const float before = maximum_;
    maximum_ = std::max(maximum_, largest<float>(highest));
    Vector<float> sums = {};
    for (int64_t x = 0; x < count; x += lanes<float>)
      sums += exponential(load<Vector<float>>(logits + x) - maximum_);
    sum_ = sum_ * std::exp(before - maximum_) + total<float>(sums);
  }

  // Which of them are among the best; `first` is the first's token.
  void choose(const float* logits, int64_t first, int64_t count) {
    for (int64_t x = 0; x < count; x += lanes<float>) {
      if (!any_above(load<Vector<float>>(logits + x), best_[most_ - 1])) continue;
      for (int64_t i = x; i < std::min(x + lanes<float>, count); ++i)
        if (logits[i] > best_[most_ - 1]) insert(logits[i], first + i);
    }
  }

  // Nothing else can be chosen.
  void only(float logit, int64_t token) {
    forget();
    insert(logit, token);
  }

  // From logits to log-probabilities; what is no number is impossible.
  void finish() const {
    const float total = maximum_ + std::log(sum_);
    for (int64_t i = 0; i < most_; ++i) best_[i] = std::isnan(total) ? -INFINITY : best_[i] - total;
  }

 private:
  int64_t most_;
  float* best_;
  int64_t* token_;
  float maximum_, sum_;

  void forget() {
    std::fill_n(best_, most_, -INFINITY);
    for (int64_t i = 0; i < most_; ++i) token_[i] = i;
  }
  void insert(float logit, int64_t token) {
    int64_t i = most_ - 1;
    for (; i > 0 && best_[i - 1] < logit; --i) best_[i] = best_[i - 1], token_[i] = token_[i - 1];
    best_[i] = logit, token_[i] = token;
  }
};

}  // namespace ea
