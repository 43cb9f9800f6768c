// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>

#include "base/file_descriptor.h"

namespace rondo::tools {

// Delivers SIGINT, SIGTERM and SIGHUP, and with children also SIGCHLD, SIGUSR1 and SIGUSR2, through
// a descriptor; the destructor restores their old handling. A signal that was ignored before (nohup
// ignores SIGHUP) stays ignored, except for SIGCHLD. It blocks the signals in the calling thread,
// and in threads that this one makes later, so the process must have no other. Throws
// std::system_error, and has changed nothing, when there is no descriptor.
class SignalQueue {
 public:
  enum class Of : unsigned char { user, user_and_children };

  explicit SignalQueue(Of of) : children_(of == Of::user_and_children) {
    sigset_t set;
    ::sigemptyset(&set);
    if (children_)
      for (int signal : {SIGCHLD, SIGUSR1, SIGUSR2}) ::sigaddset(&set, signal);
    for (int signal : {SIGINT, SIGTERM, SIGHUP})
      if (!is_ignored(signal)) ::sigaddset(&set, signal);
    descriptor_ = base::FileDescriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!descriptor_) throw std::system_error(errno, std::generic_category(), "signalfd");
    if (children_) {
      // The parent may have left SIGCHLD ignored: then children leave neither a signal nor a
      // status.
      struct sigaction standard {};
      standard.sa_handler = SIG_DFL;
      ::sigaction(SIGCHLD, &standard, &child_before_);
    }
    ::sigprocmask(SIG_BLOCK, &set, &before_);
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue() {
    if (children_) ::sigaction(SIGCHLD, &child_before_, nullptr);
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

  const bool children_;
  struct sigaction child_before_ {};
  sigset_t before_{};
  base::FileDescriptor descriptor_;
};

}  // namespace rondo::tools
