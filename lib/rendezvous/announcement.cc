// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/announcement.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fmt/format.h>

#include "base/process.h"
#include "base/text.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::rendezvous {
namespace {

constexpr std::string_view magic = "rondo 1 ";
constexpr std::size_t most_addresses = 64;

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

// "name=value " from the front of the text.
bool take_field(std::string_view& text, std::string_view name, std::string_view& value) {
  if (!text.starts_with(name) || !text.substr(name.size()).starts_with('=')) return false;
  text.remove_prefix(name.size() + 1);
  const auto end = std::min(text.find(' '), text.size());
  value = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return is_word(value);
}

}  // namespace

std::string write_announcement(const Announcement& announcement) {
  return fmt::format("{}job={:016x} host={} process={} at={}\n", magic, announcement.job,
                     announcement.host, announcement.process,
                     base::join(announcement.addresses, ","));
}

std::optional<Announcement> parse_announcement(std::string_view text) {
  if (text.size() > most_announcement_bytes || !text.starts_with(magic)) return std::nullopt;
  if (text.ends_with('\n')) text.remove_suffix(1);
  text.remove_prefix(magic.size());
  Announcement announcement;
  std::string_view job, host, process, at;
  if (!take_field(text, "job", job) || !take_field(text, "host", host) ||
      !take_field(text, "process", process) || !take_field(text, "at", at) || !text.empty())
    return std::nullopt;
  const auto [end, error] =
      std::from_chars(job.data(), job.data() + job.size(), announcement.job, 16);
  if (job.size() != 16 || error != std::errc{} || end != job.data() + job.size())
    return std::nullopt;
  announcement.host = host;
  announcement.process = process;
  for (const std::string_view address : base::split(at, ',')) {
    if (address.empty() || announcement.addresses.size() == most_addresses) return std::nullopt;
    announcement.addresses.emplace_back(address);
  }
  return announcement;
}

Liveness liveness_of(const Announcement& announcement) {
  const std::string& text = announcement.process;
  const auto first = text.find('.'), last = text.rfind('.');
  if (announcement.host != base::host_identity() || first == std::string::npos || last == first ||
      text.substr(last + 1) != base::process_namespace())
    return Liveness::unknown;
  const int process = base::parse_whole<int>(text.substr(0, first)).value_or(0);
  if (process <= 0) return Liveness::unknown;
  const auto status = base::read_process(process);
  if (!status)
    return ::kill(process, 0) == 0 || errno != ESRCH ? Liveness::unknown : Liveness::gone;
  if (status->state == 'Z' || status->state == 'X') return Liveness::gone;
  // The number may belong to another process by now, or the process may have a clock of its own
  // (unshare -T, restored containers).
  const bool same = std::to_string(status->start_time) == text.substr(first + 1, last - first - 1);
  return same ? Liveness::alive : Liveness::unknown;
}

std::string process_identity() {
  const auto status = base::read_process(::getpid());
  return std::to_string(::getpid()) + "." + std::to_string(status ? status->start_time : 0) + "." +
         base::process_namespace();
}

}  // namespace rondo::rendezvous
