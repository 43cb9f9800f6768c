// SPDX-License-Identifier: Apache-2.0
#include "lib/settings/environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include <rondo/error.h>
#include <rondo/options.h>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/text.h"
#include "lib/settings/launcher.h"
#include "lib/settings/settings.h"
#include "lib/settings/url.h"
#include "lib/settings/variables.h"
#include "lib/wire/socket.h"

namespace rondo {
namespace {

constexpr std::size_t most_secret_bytes = 4096;

std::string read_secret_file(const std::string& path) {
  constexpr const char* name = "RONDO_SECRET_FILE";
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file)
    settings::refuse_variable(name, path,
                              "the file cannot be opened: " + base::describe_errno(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    settings::refuse_variable(name, path, "it is not a regular file");
  if ((status.st_mode & 007) != 0)
    base::log_line(
        base::LogLevel::warning,
        "the secret in " + path + " (RONDO_SECRET_FILE) can be read by every user of this host");
  std::string text(most_secret_bytes + 1, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0)
    settings::refuse_variable(name, path,
                              "the file cannot be read: " + base::describe_errno(errno));
  text.resize(static_cast<std::size_t>(count));
  if (text.size() > most_secret_bytes)
    settings::refuse_variable(name, path, "a secret has at most 4096 bytes");
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) settings::refuse_variable(name, path, "the file is empty");
  return text;
}

}  // namespace

void settings::refuse_variable(const char* name, std::string_view value, const std::string& why) {
  throw Error(Errc::invalid_argument,
              std::string(name) + " is '" + std::string(value.substr(0, 200)) + "': " + why);
}

std::optional<std::string> settings::variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  const std::string_view text = base::trim(value);
  if (text.empty()) return std::nullopt;
  return std::string(text);
}

std::optional<std::int64_t> settings::whole_variable(const char* name, std::int64_t least,
                                                     std::int64_t most) {
  const auto text = settings::variable(name);
  if (!text) return std::nullopt;
  const auto value = base::parse_whole<std::int64_t>(*text);
  if (!value || *value < least || *value > most)
    settings::refuse_variable(
        name, *text,
        "it must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

std::optional<std::chrono::milliseconds> settings::seconds_variable(const char* name) {
  const auto text = settings::variable(name);
  if (!text) return std::nullopt;
  const auto value = base::parse_whole<double>(*text);
  constexpr double most = 1e7;  // some four months
  if (!value || !std::isfinite(*value) || *value < 0.001 || *value > most)
    settings::refuse_variable(
        name, *text,
        "it must be a number of seconds from 0.001 to 10000000, for instance 30 or 0.5");
  return std::chrono::milliseconds(std::llround(*value * 1000));
}

std::optional<std::size_t> settings::bytes_variable(const char* name) {
  const auto text = settings::variable(name);
  if (!text) return std::nullopt;
  const auto digits = std::min(text->find_first_not_of("0123456789"), text->size());
  const auto number = base::parse_whole<std::uint64_t>(std::string_view(*text).substr(0, digits));
  std::string unit = text->substr(digits);
  std::ranges::transform(unit, unit.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::string_view letters = "KMGT";
  const auto letter = unit.empty() ? std::string_view::npos : letters.find(unit[0]);
  const std::string_view rest =
      letter == std::string_view::npos ? std::string_view(unit) : std::string_view(unit).substr(1);
  const bool unit_known = letter == std::string_view::npos
                              ? rest.empty() || rest == "B"
                              : rest.empty() || rest == "I" || rest == "B" || rest == "IB";
  const unsigned shift =
      letter == std::string_view::npos ? 0 : 10 * (static_cast<unsigned>(letter) + 1);
  if (!number || !unit_known || *number == 0 || *number > (std::uint64_t{1} << (62 - shift)))
    settings::refuse_variable(
        name, *text,
        "it must be a number of bytes above 0, with K, M, G or T after it for powers "
        "of 1024, for instance 256K");
  return static_cast<std::size_t>(*number << shift);
}

std::optional<bool> settings::switch_variable(const char* name) {
  const auto text = settings::variable(name);
  if (!text) return std::nullopt;
  for (const char* yes : {"1", "true", "yes", "on"})
    if (*text == yes) return true;
  for (const char* no : {"0", "false", "no", "off"})
    if (*text == no) return false;
  settings::refuse_variable(name, *text,
                            "it must be 1, true, yes or on, or else 0, false, no or off");
}

std::optional<std::vector<std::string>> settings::list_variable(const char* name) {
  const auto text = settings::variable(name);
  if (!text) return std::nullopt;
  std::vector<std::string> parts;
  for (const std::string_view part : base::split(*text, ','))
    if (const auto trimmed = base::trim(part); !trimmed.empty()) parts.emplace_back(trimmed);
  if (parts.empty())
    settings::refuse_variable(name, *text, "it must be a list of names with commas between them");
  return parts;
}

std::optional<std::pair<std::uint16_t, std::uint16_t>> settings::port_range_variable(
    const char* name) {
  const auto text = settings::variable(name);
  if (!text) return std::nullopt;
  const auto dash = text->find('-');
  const auto first =
      base::parse_whole<std::uint16_t>(base::trim(std::string_view(*text).substr(0, dash)));
  const auto last =
      dash == std::string::npos
          ? first
          : base::parse_whole<std::uint16_t>(base::trim(std::string_view(*text).substr(dash + 1)));
  if (!first || !last || *first == 0 || *last < *first)
    settings::refuse_variable(
        name, *text,
        "it must be FIRST-LAST with 1 <= FIRST <= LAST <= 65535, for instance 42000-42099");
  return std::pair{*first, *last};
}

std::string settings::secret_from_environment() {
  const char* secret = std::getenv("RONDO_SECRET");
  const auto path = settings::variable("RONDO_SECRET_FILE");
  if (secret == nullptr || *secret == '\0') return path ? read_secret_file(*path) : std::string();
  if (path)
    settings::refuse_variable("RONDO_SECRET_FILE", *path,
                              "RONDO_SECRET is set too; set only one of them");
  std::string value = secret;
  if (value.size() > most_secret_bytes)
    throw Error(Errc::invalid_argument, "RONDO_SECRET has " + std::to_string(value.size()) +
                                            " bytes: at most 4096 are possible");
  return value;
}

Options Options::from_environment() {
  Options options;
  const auto environment = settings::ranks_from_environment(options);
  if (environment.rank >= 0) options.rank = environment.rank;
  if (environment.size > 0) options.size = environment.size;
  if (const auto url = settings::variable("RONDO_RENDEZVOUS")) {
    if (*url != "env://") settings::parse_rendezvous(*url, "RONDO_RENDEZVOUS");
    options.rendezvous = *url;
  }
  options.secret = settings::secret_from_environment();
  settings::warn_about_variables();
  static_cast<void>(settings::protection_of(options));
  static_cast<void>(settings::wait_mode_of(options));
  return settings::with_environment(std::move(options));
}

}  // namespace rondo
