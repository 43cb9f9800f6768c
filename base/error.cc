// SPDX-License-Identifier: Apache-2.0
#include <rondo/error.h>

namespace rondo {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "rondo"; }

  std::string message(int value) const override {
    switch (static_cast<Errc>(value)) {
      case Errc::invalid_argument:
        return "an argument is not valid";
      case Errc::mismatch:
        return "ranks called different operations";
      case Errc::deadline_exceeded:
        return "the deadline passed";
      case Errc::peer_lost:
        return "the connection to a rank broke";
      case Errc::peer_left:
        return "a rank has left the communicator";
      case Errc::aborted:
        return "the communicator was aborted";
      case Errc::rendezvous:
        return "the ranks could not find each other";
      case Errc::authentication:
        return "a peer does not know the job secret";
      case Errc::corrupt:
        return "data from the wire is damaged";
      case Errc::unsupported:
        return "not supported here";
      case Errc::system:
        return "the operating system refused a request";
    }
    return "unknown Rondo error " + std::to_string(value);
  }

  std::error_condition default_error_condition(int value) const noexcept override {
    switch (static_cast<Errc>(value)) {
      case Errc::invalid_argument:
        return std::errc::invalid_argument;
      case Errc::deadline_exceeded:
        return std::errc::timed_out;
      case Errc::peer_lost:
        return std::errc::connection_reset;
      case Errc::aborted:
        return std::errc::operation_canceled;
      case Errc::authentication:
        return std::errc::permission_denied;
      case Errc::unsupported:
        return std::errc::not_supported;
      default:
        return {value, *this};
    }
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const Category category;
  return category;
}

std::error_code make_error_code(Errc value) noexcept {
  return {static_cast<int>(value), error_category()};
}

Error::Error(Errc value, const std::string& message) : Error(make_error_code(value), message) {}

Error::Error(std::error_code code, const std::string& message)
    : std::system_error(code, message), message_(message) {}

}  // namespace rondo
