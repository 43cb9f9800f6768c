// SPDX-License-Identifier: Apache-2.0
#include <rondo/error.h>

#include <iterator>

namespace rondo {
namespace {

struct Row {
  const char* message;
  std::errc like = {};  // the condition of the standard library that it equals, if there is one
};

// By value; 0 is no error.
constexpr Row rows[] = {{nullptr},
                        {"an argument is not valid", std::errc::invalid_argument},
                        {"ranks called different operations"},
                        {"the deadline passed", std::errc::timed_out},
                        {"the connection to a rank broke", std::errc::connection_reset},
                        {"a rank has left the communicator"},
                        {"the communicator was aborted", std::errc::operation_canceled},
                        {"the ranks could not find each other"},
                        {"a peer does not know the job secret", std::errc::permission_denied},
                        {"data from the wire is damaged"},
                        {"not supported here", std::errc::not_supported},
                        {"the operating system refused a request"}};
static_assert(std::size(rows) == static_cast<std::size_t>(Errc::system) + 1);

bool is_known(int value) noexcept {
  return value > 0 && value < static_cast<int>(std::size(rows));
}

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "rondo"; }

  std::string message(int value) const override {
    return is_known(value) ? rows[value].message : "unknown Rondo error " + std::to_string(value);
  }

  std::error_condition default_error_condition(int value) const noexcept override {
    const bool has_like = is_known(value) && rows[value].like != std::errc{};
    return has_like ? std::error_condition(rows[value].like) : std::error_condition(value, *this);
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
