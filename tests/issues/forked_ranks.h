// SPDX-License-Identifier: Apache-2.0
//
// Runs ranks as processes that are forked from the test. They write exceptions to standard error.
#pragma once

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <rondo/options.h>

#include "support/tsan.h"

namespace rondo::testing {

// Runs the function in a child process. Its exit status is 0 when the function returns true, 2 when
// it returns false, and 1 when it throws.
inline pid_t start_process(const std::function<bool()>& function) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int status = 1;
  try {
    status = function() ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "process %d: %s\n", static_cast<int>(::getpid()), error.what());
  }
  ::_exit(status);
}

// Waits for the child. Returns its exit status, or 128 + signal.
inline int status_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs function(rank) in one process for each rank. Returns their exit statuses.
inline std::vector<int> run_forked(int size, const std::function<bool(int)>& function) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(start_process([&, rank] { return function(rank); }));
  std::vector<int> statuses;
  for (const pid_t child : children) statuses.push_back(status_of(child));
  return statuses;
}

// Options of a rank that meets the others at this file.
inline Options meeting_at(const std::string& path, int rank, int size) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.rendezvous = "file://" + path;
  options.secret = "the secret of this test";
  return options;
}

// Makes this process one of an ordinary user, for whom limits hold. Returns false when it cannot.
inline bool become_ordinary() {
  constexpr unsigned nobody = 65534;
  if (::geteuid() != 0) return true;
  // First tries a user without other processes: some limits count all processes of a user together.
  for (const unsigned user : {200'000u + static_cast<unsigned>(::getpid()), nobody})
    if (::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 &&
        ::setresuid(user, user, user) == 0)
      return true;
  return false;
}

}  // namespace rondo::testing
