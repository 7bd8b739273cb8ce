// Matrix products of the size of one sentence's attention.
#pragma once

#include <algorithm>

#include "vectors.h"

namespace ea {

// c[r][x] = sum over j of a[r * a_row + j * a_step] * b[j * b_row + x].
//
// Rows of b can be read to the end of a whole vector; of c's, only `columns` numbers are written.
// Each number of c is summed up by itself, in the order of j, however rows and columns are grouped.
template <typename T>
struct Product {
  const T* a;
  int64_t a_row, a_step;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  int64_t rows, steps, columns;

  void run() const {
    int64_t x = 0;
    const int64_t vectors = whole_vectors(columns, lanes<T>) / lanes<T>;
    int64_t left = vectors;
    for (; left > 4 || left == 3; left -= 3, x += 3 * lanes<T>) strip<3>(x);
    for (; left >= 2; left -= 2, x += 2 * lanes<T>) strip<2>(x);
    if (left == 1) strip<1>(x);
  }

 private:
  template <int vectors>
  void strip(int64_t x) const {
    constexpr int most = rows_together(vectors);
    int64_t r = 0;
    for (; r + most <= rows; r += most) tile<most, vectors>(r, x);
    for (; r + 2 <= rows; r += 2) tile<2, vectors>(r, x);
    if (r < rows) tile<1, vectors>(r, x);
  }

  template <int tile_rows, int vectors>
  void tile(int64_t r, int64_t x) const {
    Vector<T> sums[tile_rows][vectors] = {};
    const T* from = a + r * a_row;
    const T* row = b + x;
    for (int64_t j = 0; j < steps; ++j, from += a_step, row += b_row) {
      Vector<T> values[vectors];
      for (int v = 0; v < vectors; ++v) values[v] = load<Vector<T>>(row + v * lanes<T>);
      for (int i = 0; i < tile_rows; ++i)
        for (int v = 0; v < vectors; ++v) sums[i][v] += values[v] * from[i * a_row];
    }
    for (int i = 0; i < tile_rows; ++i) {
      T* to = c + (r + i) * c_row + x;
      for (int v = 0; v < vectors; ++v, to += lanes<T>)
        store_part(to, sums[i][v], std::min(lanes<T>, columns - x - v * lanes<T>));
    }
  }
};

}  // namespace ea
