// SPDX-License-Identifier: Apache-2.0
//
// The loops of every instruction set that this processor has, compared with plain code.
#include "bn/layer/kernels/table.h"

#include <cstdlib>
#include <string_view>

#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

std::vector<base::Isa> sets_here() {
  std::vector<base::Isa> sets{base::Isa::scalar};
  if (base::processor_isa() >= base::Isa::avx2) sets.push_back(base::Isa::avx2);
  if (base::processor_isa() == base::Isa::avx512) sets.push_back(base::Isa::avx512);
  return sets;
}

// Elements of one type that begin at an odd address, between others that nobody may change.
struct Elements {
  Elements(DType type, const Numbers& values)
      : type(type), bytes((values.size() + 2 * margin) * size_of(type), 0x55) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t bits = encode(type, values[i]);
      std::memcpy(&bytes[(margin + i) * size_of(type)], &bits, size_of(type));
    }
  }
  void* data() { return &bytes[margin * size_of(type)]; }
  Numbers values(std::size_t count) {
    Numbers result;
    for (std::size_t i = 0; i < count; ++i)
      result.push_back(decoded(type, &bytes[(margin + i) * size_of(type)]));
    return result;
  }
  bool margins_untouched() const {
    const std::size_t width = margin * size_of(type);
    for (std::size_t i = 0; i < width; ++i)
      if (bytes[i] != 0x55 || bytes[bytes.size() - 1 - i] != 0x55) return false;
    return true;
  }
  static constexpr std::size_t margin = 3;
  DType type;
  std::vector<unsigned char> bytes;
};

struct Case {
  const layer::Kernels& kernels;
  DType type;
  std::size_t rows, channels;
  std::size_t count() const { return rows * channels; }
};

double sums_tolerance(DType type) {
  return size_of(type) == 2 ? 2e-6 : 1e-13;
}
double map_tolerance(DType type) {
  return type == DType::f64   ? 1e-15
         : type == DType::f32 ? 5e-7
         : type == DType::f16 ? 0x1p-11 * 1.01
                              : 0x1p-8 * 1.01;
}

Numbers drawn(DType type, std::size_t count, std::uint64_t seed) {
  const Batch batch = stored(draw_batch(count, 1, 1, seed), type);
  return batch.values;
}

// Draws f32 values, which are the same in every type of computation.
Numbers coefficients(std::size_t count, std::uint64_t seed) {
  return drawn(DType::f32, count, seed);
}

void check_sums(const Case& of) {
  const Batch x{of.rows, of.channels, 1, drawn(of.type, of.count(), 1)},
      dy{of.rows, of.channels, 1, drawn(of.type, of.count(), 2)};
  const Numbers point = coefficients(of.channels, 3);
  Elements xs(of.type, x.values), dys(of.type, dy.values);
  const PlainSums moments(x, point), gradients(x, point, &dy);
  Numbers first(2 * of.channels, 1.0), second = first;
  // The kernels add their sums to what is there, which is 1.
  const auto compare = [&](const Numbers& got, const PlainSums& plain) {
    long double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - 1 - plain.sums[i]) / (plain.scales[i] + 1));
    CHECK(static_cast<double>(worst) <= sums_tolerance(of.type));
  };
  const layer::Loops &forward = of.kernels.forward, &backward = of.kernels.backward;
  forward.rows_sums(xs.data(), nullptr, of.rows, of.channels, point.data(), first.data(),
                    first.data() + of.channels);
  backward.rows_sums(xs.data(), dys.data(), of.rows, of.channels, point.data(), second.data(),
                     second.data() + of.channels);
  compare(first, moments);
  compare(second, gradients);
  if (of.channels != 1) return;
  first = second = {1, 1};
  forward.run_sums(xs.data(), nullptr, of.rows, point[0], first[0], first[1]);
  backward.run_sums(xs.data(), dys.data(), of.rows, point[0], second[0], second[1]);
  compare(first, moments);
  compare(second, gradients);
}

void check_maps(const Case& of, bool streamed) {
  const Numbers x = drawn(of.type, of.count(), 4), dy = drawn(of.type, of.count(), 5);
  std::vector<Numbers> lines;
  Numbers together;
  for (std::uint64_t k = 0; k < 5; ++k) {
    lines.push_back(coefficients(of.channels, 6 + k));
    together.insert(together.end(), lines.back().begin(), lines.back().end());
  }
  Elements stored_lines(of.type == DType::f64 ? DType::f64 : DType::f32, together);
  const layer::Coefficients all{stored_lines.data(), of.channels};
  Numbers forward, backward;
  for (std::size_t i = 0; i < of.count(); ++i) {
    const std::size_t c = i % of.channels;
    const double d = x[i] - lines[0][c];
    forward.push_back(d * lines[1][c] + lines[3][c]);
    backward.push_back((dy[i] - lines[4][c]) * lines[1][c] + d * lines[2][c] + lines[3][c]);
  }
  Elements xs(of.type, x), dys(of.type, dy), y(of.type, Numbers(of.count())), dx = y;
  of.kernels.forward.rows_map(xs.data(), nullptr, y.data(), of.rows, of.channels, all, streamed);
  of.kernels.backward.rows_map(xs.data(), dys.data(), dx.data(), of.rows, of.channels, all,
                               streamed);
  of.kernels.fence();
  CHECK(difference(y.values(of.count()), forward) <= map_tolerance(of.type));
  CHECK(difference(dx.values(of.count()), backward) <= map_tolerance(of.type));
  CHECK((y.margins_untouched() && dx.margins_untouched()));
  if (of.channels != 1) return;
  const std::vector<unsigned char> y_of_rows = y.bytes, dx_of_rows = dx.bytes;
  // In place.
  of.kernels.backward.run_map(xs.data(), dys.data(), dys.data(), of.rows, all, 0, streamed);
  of.kernels.forward.run_map(xs.data(), nullptr, xs.data(), of.rows, all, 0, streamed);
  of.kernels.fence();
  CHECK(difference(xs.values(of.count()), forward) <= map_tolerance(of.type));
  CHECK(difference(dys.values(of.count()), backward) <= map_tolerance(of.type));
  CHECK((xs.margins_untouched() && dys.margins_untouched()));
}

// Run by meson with RONDO_ISA=scalar too.
TEST_CASE("RONDO_ISA chooses the kernels of batch norm", "[isa]") {
  const char* const wish = std::getenv("RONDO_ISA");
  const base::Isa wanted =
      wish != nullptr && std::string_view(wish) == "scalar" ? base::Isa::scalar : base::best_isa();
  for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    CHECK(&layer::best_kernels(type) == &layer::kernels_of(wanted, type));
    CHECK((&layer::best_kernels(type) == &layer::scalar_kernels(type)) ==
          (wanted == base::Isa::scalar));
  }
}

TEST_CASE("kernels of every instruction set compute what is written plainly", "[one-thread]") {
  for (const base::Isa isa : sets_here()) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      const layer::Kernels& kernels = layer::kernels_of(isa, type);
      for (const std::size_t channels : {1, 3, 8, 16, 17, 37, 64, 100}) {
        for (const std::size_t rows : {1, 3, 8, 9, 29, 700}) {
          const Case of{kernels, type, rows, channels};
          INFO("set " << static_cast<int>(isa) << ' ' << name_of(type) << ' ' << rows << " rows of "
                      << channels);
          check_sums(of);
          check_maps(of, false);
          check_maps(of, true);
        }
      }
    }
  }
}

// Every bit pattern comes out as it went in. Every f32 near a boundary between two values is
// rounded as the table of values says.
TEST_CASE("16-bit elements are converted as IEEE 754 says, by every instruction set") {
  for (const base::Isa isa : sets_here()) {
    for (const DType type : {DType::f16, DType::bf16}) {
      const layer::Kernels& kernels = layer::kernels_of(isa, type);
      std::vector<std::uint16_t> all(65536), out(65536);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
      const float same[] = {0, 1, 0, 0, 0};
      const layer::Coefficients identity{same, 1};
      kernels.forward.run_map(all.data(), nullptr, out.data(), all.size(), identity, 0, false);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const unsigned exponent = type == DType::f16 ? 0x7c00u : 0x7f80u,
                       magnitude = all[i] & 0x7fffu;
        const unsigned quiet = type == DType::f16 ? 0x200u : 0x40u;
        const bool nan = magnitude > exponent;
        // x * 1 + 0 makes +0 of -0.
        const std::uint16_t wanted = magnitude == 0 ? std::uint16_t{0} : all[i];
        wrong += nan ? (out[i] & 0x7fffu) <= exponent || (out[i] & quiet) == 0 : out[i] != wanted;
      }
      INFO("set " << static_cast<int>(isa) << ' ' << name_of(type));
      CHECK(wrong == 0);
      // A scale of 1 + 2^-12 puts results between two values.
      const float scale = 1 + 0x1p-12F, scaled[] = {0, scale, 0, 0, 0};
      const layer::Coefficients rounding{scaled, 1};
      kernels.forward.run_map(all.data(), nullptr, out.data(), all.size(), rounding, 0, false);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const double value = decoded(type, &all[i]);
        if (!std::isfinite(value) || value == 0) continue;
        const float product = static_cast<float>(value) * scale;
        const double most = type == DType::f16 ? 65504.0 : 0x1.fep127;
        if (std::abs(static_cast<double>(product)) > most) continue;
        wrong += out[i] != encode(type, static_cast<double>(product));
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace
}  // namespace rondo::testing
