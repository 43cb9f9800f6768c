// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <system_error>

#include <rondo/export.h>

namespace rondo {

enum class Errc {
  // An argument is wrong. Nothing was started, and the communicator is unharmed.
  invalid_argument = 1,
  mismatch,           // ranks called different operations, counts, types, ops or roots
  deadline_exceeded,  // an operation or a join did not finish in its time
  peer_lost,          // a connection to a rank broke: the process died or the network did
  peer_left,          // a rank destroyed its communicator before this operation
  aborted,            // abort() was called, here or on another rank
  rendezvous,         // ranks could not find each other: missing, doubled or disagreeing ranks
  authentication,     // a peer does not know the job secret, or none was given where one is needed
  corrupt,            // a payload checksum or a frame from the wire is wrong
  unsupported,        // understood, but not possible here
  system,             // the operating system refused; the message names the call
};

RONDO_API const std::error_category& error_category() noexcept;
RONDO_API std::error_code make_error_code(Errc value) noexcept;

// what() is exactly the message: operation and its number, ranks, address of the peer, first cause,
// remedy.
class RONDO_API Error : public std::system_error {
 public:
  Error(Errc value, const std::string& message);
  Error(std::error_code code, const std::string& message);
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

}  // namespace rondo

template <>
struct std::is_error_code_enum<rondo::Errc> : std::true_type {};
