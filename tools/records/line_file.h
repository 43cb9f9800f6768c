// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace rondo::tools {

// A file that gets one line after the other, each with one write: whatever ends the process, what
// stands in it are whole lines.
class LineFile {
 public:
  // "-" is the standard output. Throws UsageError that names the flag when the file cannot be
  // written. Truncates it only with the first line.
  LineFile(std::string_view flag, const std::string& path);
  // Appends a line. Throws OutputLost for the standard output, otherwise std::system_error that
  // names the file.
  void add(std::string_view line);

 private:
  const std::string path_;
  base::FileDescriptor file_;
  bool begun_ = false;
};

}  // namespace rondo::tools
