// A linear layer of bytes over rows from standard input, for test_int8.py.
//
// In: rows, steps, columns (int64), input, weight and bias (float32). Out: rows x columns, float32.
#include <cstdio>
#include <vector>

#include "linear.h"

int main() {
  int64_t sizes[3];
  if (std::fread(sizes, sizeof(int64_t), 3, stdin) != 3) return 1;
  const auto [rows, steps, columns] = sizes;
  const auto read = [](int64_t count) {
    std::vector<float> numbers(count);
    if (std::fread(numbers.data(), sizeof(float), count, stdin) != size_t(count)) std::exit(1);
    return numbers;
  };
  const std::vector<float> in = read(rows * steps), weight = read(columns * steps);
  const std::vector<float> bias = read(columns);
  std::vector<float> out(rows * columns);
  const ea::Linear linear({weight.data(), bias.data(), columns, steps}, true);
  ea::Input input;
  input.set(in.data(), steps, rows, steps, true);
  linear(input, {out.data(), columns});
  std::fwrite(out.data(), sizeof(float), out.size(), stdout);
}
