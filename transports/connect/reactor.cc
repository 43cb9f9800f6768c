// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/reactor.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace rondo::connect {
namespace {

constexpr int near_numbers = 32;

// Returns what a descriptor of this process refers to: "anon_inode:[eventpoll]".
std::string target_of(const std::string& number) {
  std::array<char, 64> text{};
  const ssize_t count = ::readlink(("/proc/self/fd/" + number).c_str(), text.data(), text.size());
  return count > 0 ? std::string(text.data(), static_cast<std::size_t>(count)) : std::string();
}

struct Target {
  int number = -1;
  std::uint64_t inode = 0;
};

// Reads a line of /proc/self/fdinfo: "tfd: 8 events: 19 data: 5581 pos:0 ino:2c07 sdev:9".
std::optional<Target> read_target(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  Target target;
  if (!(words >> word) || word != "tfd:" || !(words >> target.number)) return std::nullopt;
  while (words >> word)
    if (word.starts_with("ino:")) target.inode = std::stoull("0" + word.substr(4), nullptr, 16);
  return target;
}

// Lists the descriptors that an epoll watches.
std::vector<Target> targets_of(const std::string& epoll) {
  std::ifstream file("/proc/self/fdinfo/" + epoll);
  std::vector<Target> targets;
  for (std::string line; std::getline(file, line);)
    if (const auto target = read_target(line)) targets.push_back(*target);
  return targets;
}

}  // namespace

std::vector<int> find_reactor(int socket) {
  struct stat status {};
  if (::fstat(socket, &status) != 0) return {};
  // Returns nothing if the descriptor is no epoll that watches the socket.
  const auto reactor_at = [&](const std::string& number) {
    std::vector<int> found;
    if (target_of(number) != "anon_inode:[eventpoll]") return found;
    const auto targets = targets_of(number);
    // The number alone may be left from a socket that another epoll has watched.
    if (std::ranges::none_of(targets, [&](const Target& target) {
          return target.number == socket && target.inode == status.st_ino;
        }))
      return found;
    found.push_back(std::stoi(number));
    for (const Target& target : targets) {
      const std::string kind = target_of(std::to_string(target.number));
      if (kind == "anon_inode:[eventfd]" || kind == "anon_inode:[timerfd]")
        found.push_back(target.number);
    }
    return found;
  };
  // The epoll was made just before the socket. A process may have thousands of other descriptors.
  for (int number = socket - 1; number >= std::max(0, socket - near_numbers); --number)
    if (auto found = reactor_at(std::to_string(number)); !found.empty()) return found;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", failed), end;
       !failed && entry != end; entry.increment(failed))
    if (auto found = reactor_at(entry->path().filename()); !found.empty()) return found;
  return {};
}

}  // namespace rondo::connect
