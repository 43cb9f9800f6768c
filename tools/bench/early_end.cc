// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/early_end.h"

#include <poll.h>
#include <rondo/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <string>
#include <system_error>
#include <utility>

namespace rondo::tools {
namespace {

constexpr int patience_ms = 800, most_patience_ms = 10'000;
constexpr std::chrono::seconds same_signal{1};

// Only a pipe or a socket has a reader that can go.
bool has_reader(int descriptor) {
  struct stat found {};
  return ::fstat(descriptor, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode));
}

}  // namespace

std::string describe_end(int signal) {
  if (signal == SIGPIPE) return "the reader of the output has closed it";
  const char* name = ::sigabbrev_np(signal);
  return fmt::format("ended by SIG{}", name != nullptr ? name : std::to_string(signal));
}

EarlyEnd::EarlyEnd(bool watches_output)
    : watches_output_(watches_output && has_reader(STDOUT_FILENO)) {
  if (!quit_) return;
  try {
    signals_.emplace(SignalQueue::Of::user);
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    signals_.reset();
  }
}

EarlyEnd::~EarlyEnd() {
  if (!thread_.joinable()) return;
  quit_.set();
  thread_.join();
}

Communicator* EarlyEnd::guard(Communicator* communicator) {
  const std::lock_guard lock(mutex_);
  return std::exchange(guarded_, communicator);
}

// Waits for what ends the run, at most so long (-1: for ever). False: the object is destroyed.
bool EarlyEnd::wait(int milliseconds) {
  const bool output = watches_output_ && !closed_;
  std::array<pollfd, 3> watched{{{quit_.descriptor(), POLLIN, 0},
                                 {signals_->descriptor(), POLLIN, 0},
                                 {output ? STDOUT_FILENO : -1, 0, 0}}};
  ::poll(watched.data(), watched.size(), milliseconds);
  if (watched[0].revents != 0) return false;
  if (watched[1].revents != 0) take_signal();
  if ((watched[2].revents & (POLLERR | POLLHUP)) != 0) closed_ = true;
  return true;
}

void EarlyEnd::take_signal() {
  const auto info = signals_->take();
  if (!info) return;
  const int signal = static_cast<int>(info->ssi_signo);
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (signal_ != 0 && now < signal_at_ + same_signal) return;
  if (signal_ == 0 && guarded_ != nullptr) {
    signal_at_ = now;
    signal_ = signal;
    came_.notify_all();
    return;
  }
  // It does what it does without this object.
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::kill(::getpid(), signal);
}

bool EarlyEnd::await_signal(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, time, [this] { return signal_ != 0; });
}

void EarlyEnd::abort() {
  const std::lock_guard lock(mutex_);
  if (guarded_ == nullptr) return;
  guarded_->abort(make_error_code(Errc::aborted),
                  describe_end(signal_ != 0 ? signal_.load() : SIGPIPE));
}

void EarlyEnd::run() {
  while (!has_come())
    if (!wait(-1)) return;
  stop_.ask();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  for (auto now = std::chrono::steady_clock::now(); now < end;
       now = std::chrono::steady_clock::now())
    if (!wait(static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(end - now).count())))
      return;
  // Ranks that have agreed to stop only sum up.
  for (int i = 0; i < most_patience_ms / patience_ms && stop_.agreed(); ++i)
    if (!wait(patience_ms)) return;
  abort();
  while (wait(-1)) {
  }
}

}  // namespace rondo::tools
