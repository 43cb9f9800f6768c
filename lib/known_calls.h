// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "collectives/schedules/call.h"
#include "lib/arguments.h"

namespace rondo::lib {

// Remembers calls of one lane that have been checked and planned. If a program repeats a call on
// the same buffers, it pays only for a comparison. Checks and plan were a fifth of the instructions
// of a small call over shared memory. Plans do not change while a communicator lives.
// Thread-bound: one thread at a time starts operations of a lane. Nothing fails.
class KnownCalls {
 public:
  // The call for these arguments, or null. The tag is no part of it.
  const schedules::Call* find(const Arguments& a) const noexcept {
    const Known& known = known_[place_of(a)];
    return known.is(a) ? &known.call : nullptr;
  }
  // Remembers a call that check_arguments() has let pass, without its tag. Counts by rank belong to
  // the caller and scales are rare, so calls with either are not kept.
  void keep(const Arguments& a, const schedules::Call& call) noexcept {
    if (has_more(a)) return;
    known_[place_of(a)] = {true, a.operation, a.op, a.root, a.in, a.out, a.options->deadline, call};
  }

 private:
  static bool has_more(const Arguments& a) noexcept {
    return !a.counts.empty() || a.options->scale.has_value() || a.options->input_scale.has_value();
  }
  static bool same(const Buffer& a, const Buffer& b) noexcept {
    return a.data == b.data && a.count == b.count && a.type == b.type && a.device == b.device;
  }
  struct Known {
    bool is(const Arguments& a) const noexcept {
      return kept && operation == a.operation && op == a.op && root == a.root && same(in, a.in) &&
             same(out, a.out) && deadline == a.options->deadline && !has_more(a);
    }

    bool kept = false;
    Collective operation = Collective::barrier;
    ReduceOp op = ReduceOp::sum;
    int root = 0;
    Buffer in, out;
    std::chrono::milliseconds deadline{};
    schedules::Call call;
  };
  static constexpr std::size_t places = 64;  // batch norm repeats two calls a layer

  static std::size_t place_of(const Arguments& a) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(a.out.data);
    return (address / 64 + a.out.count + static_cast<std::size_t>(a.operation)) % places;
  }

  std::array<Known, places> known_;
};

}  // namespace rondo::lib
