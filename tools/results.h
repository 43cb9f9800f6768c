// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/report.h"
#include "tools/result_file.h"

namespace rondo::tools {

// The rows of a benchmark in the files that the user asked for. After each store() they are whole
// documents, which say that they are not complete. So measured rows are kept, whatever ends the
// benchmark.
class Results {
 public:
  // Empty paths: no file. Throws UsageError when one cannot be written. Changes nothing yet.
  Results(const std::string& json, const std::string& csv);

  void begin(const Setting& setting);
  void add(const Setting& setting, const Row& row);
  // To be called when rows have been added. Throws as ResultFile::update does, of the first file
  // that failed and after the other has its rows.
  void store();
  // Call one of these last. fail() does nothing before begin(), and swallows errors of its own.
  void finish();
  void fail(std::string_view why) noexcept;

 private:
  struct Document {
    ResultFile file;
    std::string text;
    bool ended = false;  // whole, with its end
  };
  static void update(std::optional<Document>& document, std::string_view end, bool last);
  void write(std::string_view missing, bool last);

  std::optional<Document> json_, csv_;
  bool begun_ = false, first_ = true;
};

}  // namespace rondo::tools
