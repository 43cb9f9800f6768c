// SPDX-License-Identifier: Apache-2.0
//
// The floating-point state of a thread. Programs change it: torch's set_flush_denormal, other
// rounding modes, traps. Ranks get the same bits only if all compute in one state.
#pragma once

#include <cstdint>

namespace rondo::base {

// Puts this thread into the default state while the object lives: rounds to nearest, keeps
// subnormals, traps nothing. The destructor restores the thread's own state. A thread that is
// started meanwhile begins in the default state. Thread-bound. Has no effect on processors other
// than x86-64 and aarch64. If the state is the default one, it costs one instruction that reads it.
class DefaultFloats {
 public:
  DefaultFloats() noexcept : own_(read()) {
    if (differs()) write(default_state);
  }
  ~DefaultFloats() {
    if (differs()) write(own_);
  }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
#if defined(__x86_64__)
  using State = std::uint32_t;
  // All exceptions are masked. The lowest six bits tell which have occurred.
  static constexpr State default_state = 0x1f80, flags = 0x3f;
  static State read() noexcept {
    return __builtin_ia32_stmxcsr();
  }
  static void write(State state) noexcept {
    __builtin_ia32_ldmxcsr(state);
  }
#elif defined(__aarch64__)
  using State = std::uint64_t;
  static constexpr State default_state = 0, flags = 0;
  static State read() noexcept {
    State state;
    asm volatile("mrs %0, fpcr" : "=r"(state));
    return state;
  }
  static void write(State state) noexcept {
    asm volatile("msr fpcr, %0" : : "r"(state));
  }
#else
  using State = std::uint32_t;
  static constexpr State default_state = 0, flags = 0;
  static State read() noexcept {
    return default_state;
  }
  static void write(State) noexcept {}
#endif
  bool differs() const noexcept {
    return ((own_ ^ default_state) & ~flags) != 0;
  }

  const State own_;
};

}  // namespace rondo::base
