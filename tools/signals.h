// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>

#include "tools/descriptor.h"

namespace rondo::tools {

// Signals that this process takes from a descriptor instead of dying of them; as they were, afterwards.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t set;
    ::sigemptyset(&set);
    for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    descriptor_ = Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!descriptor_) throw std::system_error(errno, std::generic_category(), "signalfd");
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  int descriptor() const { return descriptor_.get(); }
  std::optional<signalfd_siginfo> take() {
    signalfd_siginfo info{};
    if (::read(descriptor_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return {};
    return info;
  }

 private:
  sigset_t before_{};
  Descriptor descriptor_;
};

}  // namespace rondo::tools
