// SPDX-License-Identifier: Apache-2.0
//
// The reduction for GPUs, in one phase. Each thread loads a pack (16 bytes, or one element) from
// every source, combines them in registers and stores the result to every output. All loads of a
// pack come before its stores, so an output may be one of the sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/kernels/device/arguments.h"
#include "collectives/kernels/elements.h"
#include "collectives/kernels/integer_sum.h"
#include "device/phases.h"
#include "device/several.h"

namespace rondo::kernels {
namespace {

// Length elements that a thread loads and stores at once.
template <class Stored, std::size_t Length>
struct Pack {
  using Elements = device::Several<Stored, Length>;

  RONDO_HD static Elements load(const std::byte* from) noexcept { return Elements::load(from); }
  RONDO_HD static void store(std::byte* to, const Elements& elements) noexcept {
    elements.store(to);
  }
};

// One element at any address.
template <class Stored>
struct Unaligned {
  struct Elements {
    Stored at[1];
  };

  RONDO_HD static Elements load(const std::byte* from) noexcept {
    Elements elements;
    __builtin_memcpy(&elements, from, sizeof elements);
    return elements;
  }
  RONDO_HD static void store(std::byte* to, const Elements& elements) noexcept {
    __builtin_memcpy(to, &elements, sizeof elements);
  }
};

template <class Op, class Value, std::size_t Length>
RONDO_HD void combine(Value (&values)[Length], const Value (&next)[Length]) noexcept {
  for (std::size_t i = 0; i < Length; ++i) values[i] = Op::apply(values[i], next[i]);
}

// The operation is chosen here, once for each pack: a kernel for each would be eight times the
// code.
template <class Value, std::size_t Length>
RONDO_HD void combine(ReduceOp op, Value (&values)[Length], const Value (&next)[Length]) noexcept {
  if constexpr (std::is_integral_v<Value>) {
    if (op == ReduceOp::bit_and) return combine<And>(values, next);
    if (op == ReduceOp::bit_or) return combine<Or>(values, next);
    if (op == ReduceOp::bit_xor) return combine<Xor>(values, next);
  }
  if (op == ReduceOp::product) return combine<Product>(values, next);
  if (op == ReduceOp::min) return combine<Min>(values, next);
  if (op == ReduceOp::max) return combine<Max>(values, next);
  combine<Sum>(values, next);
}

template <class Element>
struct Reduce {
  using Arguments = ReduceArguments;
  struct Shared {};
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const Arguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    const Layout layout = layout_of(arguments);
    if (layout == Layout::unaligned) {
      RONDO_ROLLED
      for (std::size_t i = thread.place(); i < arguments.count; i += thread.all())
        reduce<Unaligned<Stored>>(arguments, i * sizeof(Stored));
      return;
    }
    // Elements before the first whole pack, whole packs, and the rest.
    std::size_t head = arguments.count, packs = 0;
    if (layout == Layout::packs) {
      const std::size_t before =
          (pack_bytes - address_of(arguments.in[0]) % pack_bytes) % pack_bytes;
      const std::size_t elements = before / sizeof(Stored);
      if (elements < head) head = elements;
      packs = (arguments.count - head) / length;
    }
    RONDO_ROLLED
    for (std::size_t i = thread.place(); i < packs; i += thread.all())
      reduce<Pack<Stored, length>>(arguments, head * sizeof(Stored) + i * pack_bytes);
    const std::size_t singles = arguments.count - packs * length;
    RONDO_ROLLED
    for (std::size_t i = thread.place(); i < singles; i += thread.all())
      reduce<Pack<Stored, 1>>(arguments, (i < head ? i : i + packs * length) * sizeof(Stored));
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    const std::size_t bytes = arguments.count * sizeof(Stored);
    for (std::size_t i = 0; i < arguments.sources; ++i) visit(arguments.in[i], bytes);
    for (std::size_t i = 0; i < arguments.outputs; ++i) visit(arguments.out[i], bytes);
  }

 private:
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  static constexpr std::size_t pack_bytes = 16, length = pack_bytes / sizeof(Stored);

  // packs: all addresses agree modulo 16 and are those of elements. elements: all are addresses of
  // elements.
  enum class Layout { packs, elements, unaligned };

  RONDO_HD static std::uintptr_t address_of(const std::byte* pointer) noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }

  RONDO_HD static Layout layout_of(const Arguments& arguments) noexcept {
    const std::uintptr_t first = address_of(arguments.in[0]);
    std::uintptr_t differences = 0;
    RONDO_ROLLED
    for (std::uint32_t i = 1; i < arguments.sources; ++i)
      differences |= address_of(arguments.in[i]) ^ first;
    RONDO_ROLLED
    for (std::uint32_t i = 0; i < arguments.outputs; ++i)
      differences |= address_of(arguments.out[i]) ^ first;
    if ((first | differences) % sizeof(Stored) != 0) return Layout::unaligned;
    return differences % pack_bytes == 0 ? Layout::packs : Layout::elements;
  }

  // The elements that lie `offset` bytes behind the start of each buffer.
  template <class Access>
  RONDO_HD static void reduce(const Arguments& arguments, std::size_t offset) noexcept {
    using Elements = typename Access::Elements;
    constexpr std::size_t many = sizeof(Elements) / sizeof(Stored);
    if constexpr (std::is_integral_v<Value>)
      if (arguments.op == ReduceOp::mean) return integer_mean<Access>(arguments, offset);
    Value values[many], next[many];
    Elements loaded = Access::load(arguments.in[0] + offset);
    RONDO_ROLLED
    for (std::uint32_t source = 0; source < arguments.sources; ++source) {
      const Elements now = loaded;
      // The next load is under way while this source is combined.
      if (source + 1 < arguments.sources) loaded = Access::load(arguments.in[source + 1] + offset);
      for (std::size_t i = 0; i < many; ++i) next[i] = Element::decode(now.at[i]);
      if constexpr (std::is_floating_point_v<Value>)
        if (arguments.scaled)
          for (std::size_t i = 0; i < many; ++i)
            next[i] = scaled(next[i], arguments.factors[source]);
      if (source == 0) {
        for (std::size_t i = 0; i < many; ++i) values[i] = next[i];
        continue;
      }
      combine(arguments.op, values, next);
      if (arguments.in_steps && source + 1 < arguments.sources)
        for (std::size_t i = 0; i < many; ++i)
          values[i] = Element::decode(Element::encode(values[i]));
    }
    const bool finishing = arguments.finish.needed();
    Elements result;
    for (std::size_t i = 0; i < many; ++i)
      result.at[i] = Element::encode(
          with_one_nan(finishing ? Element::finish(values[i], arguments.finish) : values[i]));
    store<Access>(arguments, offset, result);
  }

  // Adds all sources without rounding, and divides once.
  template <class Access>
  RONDO_HD static void integer_mean(const Arguments& arguments, std::size_t offset) noexcept {
    using Elements = typename Access::Elements;
    constexpr std::size_t many = sizeof(Elements) / sizeof(Stored);
    IntegerSum<Stored> sums[many];
    RONDO_ROLLED
    for (std::uint32_t source = 0; source < arguments.sources; ++source) {
      const Elements now = Access::load(arguments.in[source] + offset);
      for (std::size_t i = 0; i < many; ++i) sums[i].add(now.at[i]);
    }
    Elements result;
    const auto ranks = static_cast<std::int64_t>(arguments.finish.divide);
    for (std::size_t i = 0; i < many; ++i) result.at[i] = sums[i].mean(ranks);
    store<Access>(arguments, offset, result);
  }

  template <class Access>
  RONDO_HD static void store(const Arguments& arguments, std::size_t offset,
                             const typename Access::Elements& result) noexcept {
    RONDO_ROLLED
    for (std::uint32_t i = 0; i < arguments.outputs; ++i)
      Access::store(arguments.out[i] + offset, result);
  }
};

}  // namespace
}  // namespace rondo::kernels
