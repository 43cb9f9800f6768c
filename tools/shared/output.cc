// SPDX-License-Identifier: Apache-2.0
#include "tools/shared/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "tools/shared/exit_status.h"

namespace rondo::tools {

OutputLost::OutputLost(int cause)
    : std::system_error(cause, std::generic_category(), "the standard output cannot be written") {}

bool OutputLost::reader_is_gone() const noexcept {
  return code().value() == EPIPE;
}

int OutputLost::exit_status() const noexcept {
  return reader_is_gone() ? exit_of_signal(SIGPIPE) : exit_failed;
}

void prepare_output() {
  // Opened in the wrong direction, so that reads and writes fail as on a closed descriptor.
  for (const auto& [descriptor, flags] :
       {std::pair{STDIN_FILENO, O_WRONLY}, std::pair{STDOUT_FILENO, O_RDONLY},
        std::pair{STDERR_FILENO, O_RDONLY}})
    if (::fcntl(descriptor, F_GETFD) < 0) static_cast<void>(::open("/dev/null", flags));
  sigset_t closed_reader;
  ::sigemptyset(&closed_reader);
  ::sigaddset(&closed_reader, SIGPIPE);
  ::sigprocmask(SIG_BLOCK, &closed_reader, nullptr);
}

void print_text(std::string_view text) {
  // The data of an empty text may be null, which fwrite() does not take.
  if (text.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) throw OutputLost(errno);
}

void flush_output() {
  if (std::fflush(stdout) != 0) throw OutputLost(errno);
  // An earlier write failed, and its caller got no error.
  if (std::ferror(stdout) != 0) throw OutputLost(EIO);
}

void say_text(std::string_view text) noexcept {
  if (text.empty()) return;
  // When this fails too, there is nobody left to tell.
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

}  // namespace rondo::tools
