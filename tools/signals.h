// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>

#include "base/file_descriptor.h"

namespace rondo::tools {

// Signals that this process takes from a descriptor instead of dying of them; as they were,
// afterwards. Those that it was told to ignore (nohup does that with SIGHUP) stay ignored, except
// for SIGCHLD.
class SignalQueue {
 public:
  SignalQueue() {
    // An ignored SIGCHLD is inherited, and then children leave neither a signal nor a status.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &child_before_);
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGCHLD);
    for (int signal : {SIGINT, SIGTERM, SIGHUP})
      if (!is_ignored(signal)) ::sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    descriptor_ = base::FileDescriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!descriptor_) throw std::system_error(errno, std::generic_category(), "signalfd");
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue() {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  int descriptor() const { return descriptor_.get(); }
  std::optional<signalfd_siginfo> take() {
    signalfd_siginfo info{};
    if (::read(descriptor_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info))
      return {};
    return info;
  }

 private:
  static bool is_ignored(int signal) {
    struct sigaction now {};
    return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }

  struct sigaction child_before_ {};
  sigset_t before_{};
  base::FileDescriptor descriptor_;
};

}  // namespace rondo::tools
