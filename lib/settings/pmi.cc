// SPDX-License-Identifier: Apache-2.0
//
// The client of PMI-1 as MPICH's Hydra and Slurm's plugin pmi2 speak it: lines of text over a
// socket that the process inherits (PMI_FD) or opens (PMI_PORT), each answered by a line:
//
//   request = "cmd=" word *(" " name "=" value) LF
//
// After a barrier every rank can get the values that were put before it. MPI in this process may
// use the same socket, so the socket stays open, and nothing behind an answer is read.
#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <map>

#include <rondo/error.h>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "lib/settings/environment.h"
#include "lib/settings/exchange.h"
#include "lib/wire/name_lookup.h"
#include "lib/wire/socket.h"

namespace rondo::settings {
namespace pmi {
namespace {

constexpr std::size_t most_line_bytes = 16'384, most_parts = 64;
constexpr std::size_t part_bytes = 480;  // launchers take 1,024 at least
constexpr milliseconds finalize_time{1'000};
constexpr int most_ranks = std::numeric_limits<int>::max();

using Fields = std::map<std::string, std::string, std::less<>>;

[[noreturn]] void fail(Errc code, const std::string& why) {
  throw Error(code, "the launcher's PMI: " + why +
                        ". To join without PMI, set RONDO_RENDEZVOUS=tcp://HOST:PORT and "
                        "RONDO_SECRET on all ranks");
}

Fields parse(std::string_view line) {
  Fields fields;
  for (const std::string_view token : base::split(line, ' '))
    if (const auto equals = token.find('='); equals != std::string_view::npos)
      fields.emplace(token.substr(0, equals), token.substr(equals + 1));
  return fields;
}

int whole_field(const Fields& fields, std::string_view name, int least, int most) {
  const auto found = fields.find(name);
  const auto value =
      found == fields.end() ? std::nullopt : base::parse_whole<std::int32_t>(found->second);
  if (!value || *value < least || *value > most)
    fail(Errc::rendezvous, fmt::format("it sent no valid {}", name));
  return *value;
}

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 2, byte, 16);
    if (error != std::errc{} || end != text.data() + at + 2) return {};
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

bool mpi_runs() {
  using Question = int(int*);
  const auto ask = [](const char* name) {
    auto* const function = reinterpret_cast<Question*>(::dlsym(RTLD_DEFAULT, name));
    int answer = 0;
    return function != nullptr && function(&answer) == 0 && answer != 0;
  };
  return ask("MPI_Initialized") && !ask("MPI_Finalized");
}

class Pmi final : public Exchange {
 public:
  explicit Pmi(base::TimePoint until) {
    if (const auto inherited = settings::whole_variable("PMI_FD", 0, most_ranks))
      inherit(static_cast<int>(*inherited));
    else
      connect(until);
    request("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", until);
    space_ = value_of(request("cmd=get_my_kvsname", "my_kvsname", until), "kvsname");
  }
  // Without this message the launcher takes the process for one that has crashed. If MPI uses the
  // same socket in this process, MPI sends it.
  ~Pmi() override {
    if (!own_ && mpi_runs()) return;
    const base::TimePoint until = base::after(base::Clock::now(), finalize_time);
    try {
      send("cmd=finalize\n", until);
      while (parse(read_line(until))["cmd"] != "finalize_ack") {
      }
    } catch (const std::exception&) {  // the launcher is gone, or MPI has sent it
    }
  }

  const std::optional<RanksOfExchange>& ranks() const noexcept { return ranks_; }

  void give(const std::string& text, base::TimePoint until) override {
    const std::string hex =
        base::hex({reinterpret_cast<const unsigned char*>(text.data()), text.size()});
    const std::size_t parts = (hex.size() + part_bytes - 1) / part_bytes;
    for (; put_ < parts; ++put_)
      put(key_of(put_), hex.substr(put_ * part_bytes, part_bytes), until);
    for (; put_ == parts; ++put_) put("rondo-parts", std::to_string(parts), until);
    pass_barrier(until);
  }

  std::string take(base::TimePoint until) override {
    pass_barrier(until);
    const int parts = whole_field({{"parts", get("rondo-parts", until)}}, "parts", 1, most_parts);
    std::string hex;
    for (int part = 0; part < parts; ++part)
      hex += get(key_of(static_cast<std::size_t>(part)), until);
    return from_hex(hex);
  }

 private:
  static std::string key_of(std::size_t part) { return "rondo-" + std::to_string(part); }

  void inherit(int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode))
      fail(Errc::rendezvous, fmt::format("descriptor {} (PMI_FD) is not its socket: something has "
                                         "closed it",
                                         descriptor));
    socket_ = descriptor;
  }

  void connect(base::TimePoint until) {
    const std::string place = settings::variable("PMI_PORT").value_or("");
    const auto id = settings::whole_variable("PMI_ID", 0, most_ranks);
    const auto colon = place.rfind(':');
    const auto port =
        colon == std::string::npos
            ? std::nullopt
            : base::parse_whole<std::uint16_t>(std::string_view(place).substr(colon + 1));
    if (!port || !id) fail(Errc::rendezvous, "PMI_PORT is not HOST:PORT, or PMI_ID is missing");
    std::string why = "it has no address";
    for (const wire::Endpoint& endpoint : wire::resolve(place.substr(0, colon), *port, until, why))
      if ((own_ = wire::connect_to(endpoint, until, why))) break;
    if (!own_) fail(Errc::rendezvous, place + " (PMI_PORT): " + why);
    socket_ = own_.get();
    request(fmt::format("cmd=initack pmiid={}", *id), "initack", until);
    const int size = whole_field(parse(read_line(until)), "size", 1, most_ranks);
    const int rank = whole_field(parse(read_line(until)), "rank", 0, size - 1);
    read_line(until);  // debug
    ranks_ = {rank, size};
  }

  void put(const std::string& key, const std::string& value, base::TimePoint until) {
    request(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, value), "put_result",
            until);
  }
  std::string get(const std::string& key, base::TimePoint until) {
    return value_of(
        request(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result", until),
        "value");
  }

  // Passes the barrier once. After a timeout the next call waits for the same barrier.
  void pass_barrier(base::TimePoint until) {
    if (passed_) return;
    if (!in_barrier_) send("cmd=barrier_in\n", until);
    in_barrier_ = true;
    check(parse(read_line(until)), "barrier_out");
    in_barrier_ = false;
    passed_ = true;
  }

  Fields request(const std::string& line, std::string_view answer, base::TimePoint until) {
    if (lost_step_) fail(Errc::rendezvous, "it did not answer an earlier request in time");
    send(line + "\n", until);
    Fields fields = parse(read_line(until));
    check(fields, answer);
    return fields;
  }

  static void check(const Fields& fields, std::string_view answer) {
    const auto command = fields.find("cmd");
    const auto status = fields.find("rc");
    if (command == fields.end() || command->second != answer ||
        (status != fields.end() && status->second != "0"))
      fail(Errc::rendezvous, fmt::format("it did not answer with {}", answer));
  }

  static std::string value_of(const Fields& fields, std::string_view name) {
    const auto found = fields.find(name);
    if (found == fields.end()) fail(Errc::rendezvous, fmt::format("its answer has no {}", name));
    return found->second;
  }

  void send(std::string_view text, base::TimePoint until) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        text.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno != EAGAIN && errno != EINTR) {
        gone(base::describe_errno(errno));
      } else if (!wire::wait_for(socket_, POLLOUT, until)) {
        late();
      }
    }
  }

  std::string read_line(base::TimePoint until) {
    for (;;) {
      if (const auto end = unread_.find('\n'); end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      if (unread_.size() > most_line_bytes) gone("it sent a line without an end");
      if (!wire::wait_for(socket_, POLLIN, until)) late();
      std::array<char, 1024> bytes;
      const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count == 0) gone("it has closed the connection");
      if (count < 0 && errno != EAGAIN && errno != EINTR) gone(base::describe_errno(errno));
      if (count > 0) unread_.append(bytes.data(), static_cast<std::size_t>(count));
    }
  }

  [[noreturn]] static void gone(const std::string& why) {
    fail(Errc::rendezvous,
         why + ". An earlier program of this rank, or MPI_Finalize, may have ended the connection");
  }
  // A late answer would be taken for that of the next request.
  [[noreturn]] void late() {
    lost_step_ = !in_barrier_;
    fail(Errc::deadline_exceeded,
         in_barrier_
             ? "not all ranks have come to its barrier in time: each process that the "
               "launcher started must connect, and RONDO_RENDEZVOUS and RONDO_SECRET must be "
               "set on all or on none of them"
             : "it did not answer in time");
  }

  base::FileDescriptor own_;  // connected to PMI_PORT
  int socket_ = -1;           // that of own_, or PMI_FD
  std::string unread_;
  std::string space_;
  std::optional<RanksOfExchange> ranks_;
  std::size_t put_ = 0;  // values put so far: the parts of the text, then their number
  bool in_barrier_ = false, passed_ = false, lost_step_ = false;
};

}  // namespace
}  // namespace pmi

std::unique_ptr<Exchange> open_pmi(base::TimePoint until, std::optional<RanksOfExchange>& ranks) {
  auto pmi = std::make_unique<pmi::Pmi>(until);
  ranks = pmi->ranks();
  return pmi;
}

}  // namespace rondo::settings
