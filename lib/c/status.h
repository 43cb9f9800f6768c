// SPDX-License-Identifier: Apache-2.0
//
// How failures cross into C: a status, and a message for each thread. Thread-safe.
#pragma once

#include <rondo/c.h>
#include <rondo/error.h>

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>

namespace rondo::c {

rondo_status fail(rondo_status status, std::string_view message) noexcept;
rondo_status status_of(const std::error_code& code) noexcept;
// Writes as much of `what` as fits, and a final zero. Throws Error(invalid_argument) if text is
// null or has no room at all.
void write_text(std::string_view what, char* text, std::size_t capacity);

// Calls function(), which returns nothing. Turns an exception into a status, with its text as this
// thread's message.
template <class Function>
rondo_status guarded(const Function& function) noexcept {
  try {
    function();
    return RONDO_OK;
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(RONDO_SYSTEM, "out of memory");
  } catch (const std::exception& error) {
    return fail(RONDO_SYSTEM, error.what());
  } catch (...) {
    return fail(RONDO_SYSTEM, "a callback threw something that is no std::exception");
  }
}

template <class T>
void require(T* pointer, const char* name) {
  if (pointer == nullptr) throw Error(Errc::invalid_argument, std::string(name) + " is NULL");
}

}  // namespace rondo::c
