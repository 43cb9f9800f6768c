// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace rondo::tools {

// True for "-" and for the names that the system gives to standard output.
bool is_standard_output(const std::string& path);
// Whether both name standard output, or both the same regular file, which need not exist yet.
bool is_one_file(const std::string& path, const std::string& other);

// A file of results that grows during a benchmark. A reader finds the old file or a whole document,
// because each version is written beside it and renamed. Some files cannot be replaced: standard
// output, a pipe, a device, a file in a folder where no file can be made. They get the text as it
// comes, and `end` once, with the last call.
class ResultFile {
 public:
  // Throws UsageError that names the flag when the file cannot be written. Changes nothing yet.
  ResultFile(std::string_view flag, const std::string& path);

  // Takes the whole text so far, and the end that makes it a document. The text must begin with
  // that of the call before. No call may follow the one with `last`. Throws OutputLost for standard
  // output, otherwise std::system_error that names the file.
  void update(std::string_view text, std::string_view end, bool last);

 private:
  void replace(std::string_view text, std::string_view end) const;

  std::string path_;
  bool replaced_ = false;  // false: it grows in place, with the two members below
  base::FileDescriptor file_;
  std::size_t written_ = 0;  // of the text
};

// Writes the text to the file, or to the standard output for "-". Throws as ResultFile does.
void write_report(std::string_view flag, const std::string& path, std::string_view text);

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
};

}  // namespace rondo::tools
