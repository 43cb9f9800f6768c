// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace rondo::compare {
namespace {

[[noreturn]] void throw_system(const std::string& what) {
  throw std::system_error(errno, std::system_category(), what);
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    throw std::invalid_argument("control path too long: " + path);
  path.copy(address.sun_path, path.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) throw_system("socket");
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    ::close(socket);
    throw std::system_error(error, std::system_category(), "connect to " + path);
  }
  return socket;
}

}  // namespace

Control::Control(const std::string& path)
    : socket_(connect_to(path)), watcher_([this] { end_with_driver(); }) {}

Control::~Control() {
  closing_ = true;
  ::shutdown(socket_, SHUT_RDWR);  // wakes the watcher
  watcher_.join();
  ::close(socket_);
}

void Control::end_with_driver() {
  pollfd hang_up{socket_, POLLRDHUP, 0};
  while (::poll(&hang_up, 1, -1) <= 0) continue;
  if (!closing_) std::_Exit(1);
}

bool Control::readable() const {
  if (received_.find('\n') != std::string::npos) return true;
  pollfd input{socket_, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0;
}

std::optional<std::string> Control::read_line() {
  for (;;) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    std::array<char, 4096> chunk;
    const ssize_t got = ::read(socket_, chunk.data(), chunk.size());
    if (got > 0) {
      received_.append(chunk.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      return std::nullopt;
    } else if (errno != EINTR) {
      throw_system("read from the driver");
    }
  }
}

void Control::write_line(std::string line) {
  line += '\n';
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t sent = ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EINTR) {
      throw_system("write to the driver");
    }
  }
}

std::string ready_line(int rank, int size, const std::vector<std::string>& algorithms) {
  std::ostringstream line;
  line << "ready " << rank << ' ' << size;
  for (const std::string& algorithm : algorithms) line << ' ' << algorithm;
  return line.str();
}

int run_controlled(const std::string& path, const std::function<void(Control&)>& rank) {
  try {
    Control control(path);
    try {
      rank(control);
      return 0;
    } catch (const std::exception& error) {
      std::string text = error.what();
      for (char& c : text) c = c == '\n' ? ' ' : c;
      control.write_line("failed " + text);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}

}  // namespace rondo::compare
