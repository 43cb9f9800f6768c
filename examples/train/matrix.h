// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace train {

// A matrix to read: element (i, j) is data[i * row + j * column].
template <class T>
struct View {
  const T* data;
  std::size_t row, column;
};

namespace detail {

// Adds to one block of c. The sums stay in registers while the loop runs along the inner dimension.
template <class T, std::size_t Rows, std::size_t Columns>
void add_block(T* c, std::size_t width, View<T> a, const T* b, std::size_t inner) {
  T sum[Rows][Columns] = {};
  for (std::size_t k = 0; k < inner; ++k)
    for (std::size_t i = 0; i < Rows; ++i) {
      const T factor = a.data[i * a.row + k * a.column];
      for (std::size_t j = 0; j < Columns; ++j) sum[i][j] += factor * b[k * width + j];
    }
  for (std::size_t i = 0; i < Rows; ++i)
    for (std::size_t j = 0; j < Columns; ++j) c[i * width + j] += sum[i][j];
}

template <class T, std::size_t Columns>
void add_rows(T* c, std::size_t rows, std::size_t width, View<T> a, const T* b, std::size_t inner) {
  std::size_t i = 0;
  for (; i + 4 <= rows; i += 4)
    add_block<T, 4, Columns>(c + i * width, width, {a.data + i * a.row, a.row, a.column}, b, inner);
  for (; i < rows; ++i)
    add_block<T, 1, Columns>(c + i * width, width, {a.data + i * a.row, a.row, a.column}, b, inner);
}

}  // namespace detail

// c += a b, where c is rows x columns and b is inner x columns, both contiguous by rows.
template <class T>
void multiply_add(T* c, std::size_t rows, std::size_t columns, View<T> a, const T* b,
                  std::size_t inner) {
  std::size_t j = 0;
  for (; j + 8 <= columns; j += 8) detail::add_rows<T, 8>(c + j, rows, columns, a, b + j, inner);
  for (; j < columns; ++j) detail::add_rows<T, 1>(c + j, rows, columns, a, b + j, inner);
}

}  // namespace train
