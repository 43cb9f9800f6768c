// SPDX-License-Identifier: Apache-2.0
#include "tools/records/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "tools/records/result_file.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {

LineFile::LineFile(std::string_view flag, const std::string& path)
    : path_(is_standard_output(path) ? "-" : path) {
  if (path_ == "-") return;
  // A reader of a pipe takes a close for the end, so add() opens it once.
  struct stat found {};
  if (::stat(path_.c_str(), &found) == 0 && S_ISFIFO(found.st_mode) &&
      ::access(path_.c_str(), W_OK) == 0)
    return;
  file_ =
      base::FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_)
    throw UsageError(fmt::format("{} {}: cannot be written: {}", flag, path,
                                 std::generic_category().message(errno)));
}

void LineFile::add(std::string_view line) {
  const std::string text = fmt::format("{}\n", line);
  if (path_ == "-") {
    print_text(text);
    return flush_output();
  }
  if (!file_) file_ = base::FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file_) throw std::system_error(errno, std::generic_category(), "cannot write " + path_);
  struct stat found {};
  if (!begun_ && ::fstat(file_.get(), &found) == 0 && S_ISREG(found.st_mode) &&
      ::ftruncate(file_.get(), 0) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot truncate " + path_);
  begun_ = true;
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      throw std::system_error(errno, std::generic_category(), "cannot write " + path_);
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace rondo::tools
