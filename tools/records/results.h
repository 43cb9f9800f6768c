// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/bench/report.h"
#include "tools/records/result_file.h"

namespace rondo::tools {

// Writes the rows of a benchmark to the files that the user asked for. After each store() the files
// are whole documents, marked as not complete. So no measured row is lost, whatever ends the
// benchmark.
class Results {
 public:
  // Empty paths: no file. Throws UsageError when one cannot be written. Changes nothing yet.
  Results(const std::string& json, const std::string& csv);

  void begin(const Setting& setting);
  void add(const Setting& setting, const Row& row);
  // Writes the rows that were added. Tries both files, then throws as ResultFile::update does. When
  // both fail it throws the error of the CSV file.
  void store();
  // Call one of these last. fail() does nothing before begin(). It does not throw, but reports its
  // own errors on standard error.
  void finish();
  void fail(std::string_view why) noexcept;

 private:
  struct Document {
    ResultFile file;
    std::string text;
    bool ended = false;  // complete: nothing more is written
  };
  static void update(std::optional<Document>& document, std::string_view end, bool last);
  void write(std::string_view missing, bool last);

  std::optional<Document> json_, csv_;
  bool begun_ = false, first_ = true;
};

}  // namespace rondo::tools
