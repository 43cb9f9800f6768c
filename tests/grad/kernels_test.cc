// SPDX-License-Identifier: Apache-2.0
//
// The kernels of gradient buckets, run on the processor, against what the processor does itself:
// every tail and alignment, several pieces, hard numbers.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <rondo/convert.h>

#include "catch.h"
#include "grad/device/kernels.h"
#include "grad/device/launches.h"
#include "grad/gpu.h"
#include "grad/host_kernels.h"
#include "support/device_kernels.h"
#include "support/draw.h"
#include "support/image_check.h"

namespace rondo::testing {
namespace {

constexpr std::size_t lengths[] = {1, 2, 3, 4, 5, 8, 31, 64, 1001, 5000};
constexpr std::byte untouched{0xa5};

void run_kernel(std::string_view name, const grad::Pass& pass, std::span<const grad::Piece> pieces,
                unsigned blocks) {
  grad::PieceArguments arguments{};
  std::ranges::copy(pieces, arguments.pieces);
  arguments.count = static_cast<std::uint32_t>(pieces.size());
  arguments.pass = pass;
  const HostKernel* const kernel = find_host_kernel(name);
  REQUIRE(kernel != nullptr);
  REQUIRE(kernel->argument_bytes == sizeof arguments);
  kernel->run(&arguments, blocks, device::block_threads, same_address);
}

// All pieces of a test back to back, `shift` bytes behind an address that is a multiple of 16.
class Range {
 public:
  Range(std::size_t length, std::size_t shift)
      : shift_(shift), memory_(length / sizeof(Chunk) + 3) {
    std::memset(memory_.data(), static_cast<int>(untouched), memory_.size() * sizeof(Chunk));
    end_ = data() + length;
  }
  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(memory_.data()) + 16 + shift_; }
  // Nothing before and behind it was written.
  bool is_whole() noexcept { return *(data() - 1) == untouched && *end_ == untouched; }

 private:
  struct alignas(16) Chunk {
    std::byte data[16];
  };
  std::size_t shift_;
  std::vector<Chunk> memory_;
  std::byte* end_ = nullptr;
};

float hard_number(Draw& draw) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (draw(8) != 0) return std::bit_cast<float>(static_cast<std::uint32_t>(draw(0x7f800000)));
  return draw.one_of({0.0F, -0.0F, 1.0F, -1.00390625F, 3.4e38F, -3.4e38F, infinity, -infinity,
                      1e-40F, -1e-45F, std::numeric_limits<float>::max()});
}

void fill_floats(std::byte* to, std::size_t count, Draw& draw) {
  for (std::size_t i = 0; i < count; ++i) {
    const float value = hard_number(draw);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

std::string kernel_for(std::string_view what, DType type) {
  return std::string("rondo_grad_").append(what).append("_").append(name_of(type));
}

void fill_elements(std::byte* to, DType type, std::size_t count, Draw& draw) {
  for (std::size_t i = 0; i < count; ++i) {
    // Finite numbers of every size.
    std::uint64_t bits = draw(std::uint64_t{1} << 63);
    const std::size_t bytes = size_of(type);
    std::byte* const element = to + i * bytes;
    std::memcpy(element, &bits, bytes);
    element[bytes - 1] = (element[bytes - 1] & std::byte{0x83}) | std::byte{0x38};
  }
}

// Which NaN a result is, is not defined.
bool same_codes(const std::byte* got, const std::vector<std::uint16_t>& wanted, DType type) {
  const int infinity = type == DType::f16 ? 0x7c00 : 0x7f80;
  const auto is_nan = [infinity](std::uint16_t code) { return (code & 0x7fff) > infinity; };
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, got + i * sizeof code, sizeof code);
    if (code != wanted[i] && !(is_nan(code) && is_nan(wanted[i]))) return false;
  }
  return true;
}

bool same(const std::byte* a, const std::byte* b, std::size_t size) {
  return std::memcmp(a, b, size) == 0;
}

TEST_CASE("kernels of gradients move and save every byte", "[gpu]") {
  const std::size_t from_shift = GENERATE(0, 2, 4, 8), to_shift = GENERATE(0, 2, 4),
                    save_shift = GENERATE(0, 4);
  const unsigned blocks = GENERATE(1, 3);
  Draw draw(from_shift + 16 * to_shift + save_shift);
  for (const std::size_t length : lengths) {
    const std::size_t size = 2 * length;
    Range from(size, from_shift), to(3 * size, to_shift), saved(size, save_shift);
    for (std::size_t i = 0; i < size; ++i) from.data()[i] = static_cast<std::byte>(draw(256));
    for (std::size_t i = 0; i < 3 * size; ++i) to.data()[i] = static_cast<std::byte>(i % 251);
    const std::vector<std::byte> before(to.data(), to.data() + 3 * size);
    const grad::Piece pieces[] = {{from.data(), to.data(), nullptr, length},
                                  {nullptr, to.data() + size, saved.data(), length},
                                  {nullptr, to.data() + 2 * size, nullptr, length}};
    run_kernel("rondo_grad_move", {}, pieces, blocks);
    const std::vector<std::byte> zeros(2 * size);
    CHECK(same(to.data(), from.data(), size));
    CHECK(same(to.data() + size, zeros.data(), 2 * size));
    CHECK(same(saved.data(), before.data() + size, size));
    CHECK((to.is_whole() && saved.is_whole()));
  }
}

TEST_CASE("kernels of gradients round as the processor does, and find what f16 cannot hold",
          "[gpu]") {
  const DType type = GENERATE(DType::f16, DType::bf16);
  const std::size_t from_shift = GENERATE(0, 4), to_shift = GENERATE(0, 2);
  const double factor = GENERATE(1.0, 1.0 / 3, 0.125);
  const bool large = GENERATE(false, true);
  Draw draw(from_shift + to_shift);
  for (const std::size_t length : lengths) {
    Range from(4 * length, from_shift), to(4 * length, to_shift);
    fill_floats(from.data(), length, draw);
    std::vector<float> gradient(length);
    std::memcpy(gradient.data(), from.data(), 4 * length);
    for (float& value : gradient)
      if (!large && grad::overflows_f16(value)) value = 1.5F;
    std::memcpy(from.data(), gradient.data(), 4 * length);
    std::vector<std::uint16_t> wanted(length);
    std::uint32_t found = 0, overflow = 0;
    grad::Pass pass{grad::Operation::multiply, DType::f32, type, factor};
    pass.overflow = type == DType::f16 ? &found : nullptr;
    const grad::Piece on_host{from.data(), reinterpret_cast<std::byte*>(wanted.data()), nullptr,
                              length, 2};
    grad::run_on_host(pass, std::span(&on_host, 1));
    REQUIRE((found == 0 || (large && found == 3)));
    const grad::Piece pieces[] = {{from.data(), to.data(), nullptr, length, 2},
                                  {nullptr, to.data() + 2 * length, nullptr, length, 0}};
    if (pass.overflow != nullptr) pass.overflow = &overflow;
    run_kernel(kernel_for("to", type), pass, pieces, 2);
    const std::vector<std::byte> zeros(2 * length);
    CHECK(same_codes(to.data(), wanted, type));
    CHECK(same(to.data() + 2 * length, zeros.data(), 2 * length));
    CHECK(to.is_whole());
    CHECK(overflow == found);
  }
}

TEST_CASE("kernels of gradients clip as the processor does", "[gpu]") {
  const DType type = GENERATE(DType::f64, DType::f32, DType::f16, DType::bf16);
  const std::size_t bytes = size_of(type), shift = GENERATE(0, 1) * bytes;
  Draw draw(bytes);
  for (const std::size_t length : lengths)
    for (const double squares : {16.0, 1e-3, HUGE_VAL, std::nan("")}) {
      Range values(bytes * length, shift), wanted(bytes * length, shift);
      fill_elements(values.data(), type, length, draw);
      std::memcpy(wanted.data(), values.data(), bytes * length);
      const double factor = grad::clip_factor_of_squares(squares, 2);
      CHECK(factor == (squares == 16 ? 2 / (std::sqrt(squares) + 1e-6) : 1));
      const grad::Pass pass{grad::Operation::multiply, type, type, 2, nullptr, &squares};
      const grad::Piece on_host{wanted.data(), wanted.data(), nullptr, length},
          piece{values.data(), values.data(), nullptr, length};
      grad::run_on_host(pass, std::span(&on_host, 1));
      run_kernel(kernel_for("scale", type), pass, std::span(&piece, 1), 2);
      CHECK(same(values.data(), wanted.data(), bytes * length));
      CHECK(values.is_whole());
    }
}

TEST_CASE("kernels of gradients widen as the processor does", "[gpu]") {
  const DType type = GENERATE(DType::f16, DType::bf16);
  const std::uint64_t finite = type == DType::f16 ? 0x7c01 : 0x7f81;  // and infinity
  const std::size_t from_shift = GENERATE(0, 2), to_shift = GENERATE(0, 4);
  const double factor = GENERATE(1.0, 4.0, 1.0 / 3);
  Draw draw(from_shift + to_shift);
  for (const std::size_t length : lengths) {
    Range from(2 * length, from_shift), to(4 * length, to_shift);
    std::vector<std::uint16_t> codes(length);
    // No NaN: which one it is, is not defined.
    for (std::uint16_t& code : codes)
      code = static_cast<std::uint16_t>(draw(finite) | draw(2) << 15);
    std::memcpy(from.data(), codes.data(), 2 * length);
    std::vector<float> wanted(length);
    auto* const wanted_bytes = reinterpret_cast<std::byte*>(wanted.data());
    const grad::Pass pass{grad::Operation::multiply, type, DType::f32, factor};
    const grad::Piece on_host{from.data(), wanted_bytes, nullptr, length},
        piece{from.data(), to.data(), nullptr, length};
    grad::run_on_host(pass, std::span(&on_host, 1));
    run_kernel(kernel_for("from", type), pass, std::span(&piece, 1), 2);
    CHECK(same(to.data(), wanted_bytes, 4 * length));
    CHECK(to.is_whole());
  }
}

TEST_CASE("kernels of gradients add squares as the processor does", "[gpu]") {
  const DType type = GENERATE(DType::f64, DType::f32, DType::f16, DType::bf16);
  const std::string kernel = kernel_for("squares", type);
  const std::size_t bytes = size_of(type);
  Draw draw(bytes);
  for (const std::size_t length :
       {1, 7, 8, 9, 127, 128, 129, 4095, 4096, 4097, 8191, 8200, 20'000}) {
    for (const std::size_t shift : {0, 8, 2}) {
      if (shift % bytes != 0) continue;
      // Two pieces, at any address of an element, in one launch.
      Range first(length * bytes, shift), second((length + 5) * bytes, 0);
      fill_elements(first.data(), type, length, draw);
      fill_elements(second.data(), type, length + 5, draw);
      const std::size_t blocks = grad::square_blocks(length),
                        all = blocks + grad::square_blocks(length + 5);
      std::vector<double> wanted(all), got(all + 1, -1);
      const grad::Pass pass{grad::Operation::sum_squares, type, DType::f64};
      const auto pieces_to = [&](std::vector<double>& sums) {
        auto* const to = reinterpret_cast<std::byte*>(sums.data());
        return std::array{
            grad::Piece{first.data(), to, nullptr, length},
            grad::Piece{second.data(), to + blocks * sizeof(double), nullptr, length + 5}};
      };
      grad::run_on_host(pass, pieces_to(wanted));
      run_kernel(kernel, pass, pieces_to(got), static_cast<unsigned>(all));
      CHECK(std::equal(wanted.begin(), wanted.end(), got.begin()));
      CHECK(got.back() == -1);
    }
  }
}

TEST_CASE("a kernel of gradients adds sums of blocks as the processor does", "[gpu]") {
  Draw draw(3);
  for (const std::size_t length : {1, 2, 8, 255, 256, 257, 1000, 5000}) {
    std::vector<double> blocks(length), got(3, -1);
    for (double& block : blocks) block = static_cast<double>(draw(1'000'000'007)) / 3;
    const auto* const from = reinterpret_cast<const std::byte*>(blocks.data());
    const grad::Pass pass{grad::Operation::sum_blocks, DType::f64, DType::f64};
    const auto pieces_to = [&](std::vector<double>& sums) {
      auto* const to = reinterpret_cast<std::byte*>(sums.data());
      return std::array{grad::Piece{from, to, nullptr, length},
                        grad::Piece{nullptr, to + sizeof(double), nullptr, 1}};
    };
    std::vector<double> wanted(3, -1);
    grad::run_on_host(pass, pieces_to(wanted));
    run_kernel("rondo_grad_add_blocks", pass, pieces_to(got), 2);
    CHECK((got == wanted && got[1] == 0 && got[2] == -1));
  }
}

TEST_CASE("the image of gradients has the kernels of the list and no others", "[.][image]") {
  CHECK(check_image(grad::device_image(), "rondo_grad_") == 14);
}

}  // namespace
}  // namespace rondo::testing
