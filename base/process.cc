// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "base/file_descriptor.h"
#include "base/text.h"

namespace rondo::base {
namespace {

// The number in "net:[4026531833]"; empty when the link cannot be read.
std::string namespace_number(const char* link) {
  std::array<char, 64> text{};
  const ssize_t count = ::readlink(link, text.data(), text.size());
  if (count <= 0) return {};
  const std::string_view target(text.data(), static_cast<std::size_t>(count));
  const auto open = target.find('['), close = target.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return std::string(target.substr(open + 1, close - open - 1));
}

std::string boot_identity() {
  return std::string(trim(read_short_file("/proc/sys/kernel/random/boot_id")));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data())
                                                          : std::string("unknown");
}

std::string read_short_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return {};
  std::array<char, 4096> text;
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  return count > 0 ? std::string(text.data(), static_cast<std::size_t>(count)) : std::string();
}

std::optional<ProcessStatus> read_process(int process) {
  // The name stands in parentheses and may contain any character, parentheses too.
  const std::string text = read_short_file("/proc/" + std::to_string(process) + "/stat");
  const auto open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  ProcessStatus status;
  status.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  fields >> status.state >> status.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> status.start_time;
  if (!fields) return std::nullopt;
  return status;
}

std::string process_namespace() {
  const std::string number = namespace_number("/proc/self/ns/pid");
  return number.empty() ? "0" : number;
}

std::string clock_identity() {
  const std::string boot = boot_identity(), number = namespace_number("/proc/self/ns/time");
  return boot.empty() || number.empty() ? std::string() : boot + "." + number;
}

std::string host_identity() {
  std::string boot = boot_identity();
  if (boot.empty()) boot = host_name();
  const std::string network = namespace_number("/proc/self/ns/net");
  return boot + "." + (network.empty() ? "0" : network);
}

}  // namespace rondo::base
