// SPDX-License-Identifier: Apache-2.0
//
// The kernels that go over the elements of buckets. All threads of the grid share the pieces of a
// launch as if these lay back to back, so a launch of many small pieces keeps as many threads busy
// as one of a large piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/short_floats.h"
#include "device/phases.h"
#include "device/several.h"
#include "grad/device/arguments.h"
#include "grad/device/arithmetic.h"

namespace rondo::grad {
namespace {

// Deals elements out to the threads of the grid.
struct Shares {
  const device::GridThread& thread;
  std::uint64_t before = 0;  // what has been dealt out

  // Calls body(i) for this thread's share of the numbers below count.
  template <class Body>
  RONDO_HD void each(std::uint64_t count, const Body& body) noexcept {
    const std::uint64_t all = thread.all();
    RONDO_ROLLED
    for (std::uint64_t i = (thread.place() + all - before % all) % all; i < count; i += all)
      body(i);
    before += count;
  }
};

// to = from. Before that saved = to, where there is a place: the former contents are saved.
struct Moves {
  static constexpr std::size_t from_bytes = 1, to_bytes = 1;

  RONDO_HD static std::uint32_t run(const Piece& piece, const PieceArguments&,
                                    Shares& shares) noexcept {
    const auto all = reinterpret_cast<std::uintptr_t>(piece.from) |
                     reinterpret_cast<std::uintptr_t>(piece.to) |
                     reinterpret_cast<std::uintptr_t>(piece.saved);
    if (all % 16 == 0)
      in_units<device::Several<std::uint32_t, 4>>(piece, shares);
    else if (all % 4 == 0)
      in_units<device::Several<std::uint32_t, 1>>(piece, shares);
    else
      in_units<Half>(piece, shares);
    return 0;
  }

 private:
  using Half = device::Several<std::uint16_t, 1>;

  template <class Unit>
  RONDO_HD static void in_units(const Piece& piece, Shares& shares) noexcept {
    const std::uint64_t units = piece.count / sizeof(Unit), rest = piece.count % sizeof(Unit);
    shares.each(units, [&piece](std::uint64_t i) { move<Unit>(piece, i * sizeof(Unit)); });
    shares.each(rest / sizeof(Half), [&piece, rest](std::uint64_t i) {
      move<Half>(piece, piece.count - rest + i * sizeof(Half));
    });
  }
  template <class Unit>
  RONDO_HD static void move(const Piece& piece, std::uint64_t offset) noexcept {
    if (piece.saved != nullptr) Unit::load(piece.to + offset).store(piece.saved + offset);
    const Unit unit = piece.from == nullptr ? Unit{} : Unit::load(piece.from + offset);
    unit.store(piece.to + offset);
  }
};

// Converts packs of four elements, or single ones where the addresses do not allow packs. A null
// address allows all.
template <class Conversion>
struct Conversions {
  static constexpr std::size_t from_bytes = Conversion::from_bytes, to_bytes = Conversion::to_bytes;

  // Returns what the thread has found out for the piece's word.
  RONDO_HD static std::uint32_t run(const Piece& piece, const PieceArguments& arguments,
                                    Shares& shares) noexcept {
    Conversion conversion(arguments);
    if (conversion.changes_nothing()) return 0;
    const auto fits = [](const void* pointer, std::size_t bytes) {
      return reinterpret_cast<std::uintptr_t>(pointer) % (4 * bytes) == 0;
    };
    const bool in_packs = fits(piece.from, from_bytes) && fits(piece.to, to_bytes);
    const std::uint64_t packs = in_packs ? piece.count / 4 : 0;
    shares.each(packs, [&](std::uint64_t i) { conversion.template run<4>(piece, 4 * i); });
    shares.each(piece.count - 4 * packs,
                [&](std::uint64_t i) { conversion.template run<1>(piece, 4 * packs + i); });
    return conversion.found();
  }
};

// to (a short float) = from (f32) * factor, rounded to nearest even, as encode_wire(). Finds 1
// where an element overflows_f16().
template <class Format>
class Narrow {
 public:
  static constexpr std::size_t from_bytes = 4, to_bytes = 2;

  RONDO_HD explicit Narrow(const PieceArguments& arguments) noexcept
      : factor_(static_cast<float>(arguments.factor)) {}
  RONDO_HD bool changes_nothing() const noexcept { return false; }
  template <std::size_t Length>
  RONDO_HD void run(const Piece& piece, std::uint64_t i) noexcept {
    device::Several<std::uint16_t, Length> codes{};
    if (piece.from != nullptr) {
      const auto values = device::Several<float, Length>::load(piece.from + i * sizeof(float));
      for (std::size_t k = 0; k < Length; ++k) {
        found_ |= overflows_f16(values.at[k]) ? 1U : 0U;
        codes.at[k] = static_cast<std::uint16_t>(Format::encode(times(values.at[k], factor_)));
      }
    }
    codes.store(piece.to + i * sizeof(std::uint16_t));
  }
  RONDO_HD std::uint32_t found() const noexcept { return found_; }

 private:
  const float factor_;
  std::uint32_t found_ = 0;
};

// to (f32) = from (a short float) * factor, as decode_wire().
template <class Format>
class Widen {
 public:
  static constexpr std::size_t from_bytes = 2, to_bytes = 4;

  RONDO_HD explicit Widen(const PieceArguments& arguments) noexcept
      : factor_(arguments.factor), narrow_(is_f32(factor_)) {}
  RONDO_HD bool changes_nothing() const noexcept { return false; }
  template <std::size_t Length>
  RONDO_HD void run(const Piece& piece, std::uint64_t i) const noexcept {
    using Codes = device::Several<std::uint16_t, Length>;
    const Codes codes = Codes::load(piece.from + i * sizeof(std::uint16_t));
    device::Several<float, Length> values;
    for (std::size_t k = 0; k < Length; ++k) {
      const float value = Format::decode(codes.at[k]);
      values.at[k] = narrow_ ? times(value, static_cast<float>(factor_)) : times(value, factor_);
    }
    values.store(piece.to + i * sizeof(float));
  }
  RONDO_HD std::uint32_t found() const noexcept { return 0; }

 private:
  const double factor_;
  const bool narrow_;
};

struct ElementF64 {
  using Stored = double;
  RONDO_HD static double multiplied(double value, double factor) noexcept { return value * factor; }
};
struct ElementF32 {
  using Stored = float;
  RONDO_HD static float multiplied(float value, double factor) noexcept {
    return times(value, factor);
  }
};
template <class Format>
struct ElementShort {
  using Stored = std::uint16_t;
  RONDO_HD static std::uint16_t multiplied(std::uint16_t code, double factor) noexcept {
    return static_cast<std::uint16_t>(Format::encode(times(Format::decode(code), factor)));
  }
};

// to = from * the factor that clips, which each thread computes from the sum of squares.
template <class Element>
class Scale {
  using Stored = typename Element::Stored;

 public:
  static constexpr std::size_t from_bytes = sizeof(Stored), to_bytes = sizeof(Stored);

  RONDO_HD explicit Scale(const PieceArguments& arguments) noexcept
      : factor_(clip_factor_of_squares(*arguments.squares, arguments.factor)) {}
  RONDO_HD bool changes_nothing() const noexcept { return factor_ == 1; }
  template <std::size_t Length>
  RONDO_HD void run(const Piece& piece, std::uint64_t i) const noexcept {
    auto values = device::Several<Stored, Length>::load(piece.from + i * sizeof(Stored));
    for (std::size_t k = 0; k < Length; ++k)
      values.at[k] = Element::multiplied(values.at[k], factor_);
    values.store(piece.to + i * sizeof(Stored));
  }
  RONDO_HD std::uint32_t found() const noexcept { return 0; }

 private:
  const double factor_;
};

// All pieces of a launch. With words, a piece for which a thread finds something gets that word:
// all threads find the same.
template <class Kernel>
struct Pieces {
  using Arguments = PieceArguments;
  struct Shared {};
  static constexpr int phases = 1;
  static constexpr std::size_t from_bytes = Kernel::from_bytes, to_bytes = Kernel::to_bytes;

  RONDO_HD static void run(int, const PieceArguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    Shares shares{thread};
    RONDO_ROLLED
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      const Piece& piece = arguments.pieces[i];
      const std::uint32_t found = Kernel::run(piece, arguments, shares);
      if (found != 0 && arguments.words != nullptr) arguments.words[piece.number] = found;
    }
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    std::uint32_t words = 0;
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      Piece& piece = arguments.pieces[i];
      words = piece.number < words ? words : piece.number + 1;
      if (piece.from != nullptr) visit(piece.from, piece.count * Kernel::from_bytes);
      visit(piece.to, piece.count * Kernel::to_bytes);
      if (piece.saved != nullptr) visit(piece.saved, piece.count);
    }
    if (arguments.words != nullptr) visit(arguments.words, words * sizeof(std::uint32_t));
    if (arguments.squares != nullptr) visit(arguments.squares, sizeof(double));
  }
};

}  // namespace
}  // namespace rondo::grad
