// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/records/result_file.h"

namespace rondo::tools {

// Members stay in the order in which they were written.
using Json = nlohmann::ordered_json;

// A value on one line. Bytes of a text that are not UTF-8 are replaced.
inline std::string write_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}
// To a whole number of steps in one: records have no more digits than a measurement.
inline double rounded(double value, double steps) {
  return std::round(value * steps) / steps;
}

// Writes a record (docs/reference/records.md) to the files that the user asked for, as JSON, as CSV
// and as lines of JSON. Lines are written at once. After each store() the other files are whole
// documents, marked as not complete. So nothing that was measured is lost, whatever ends the run.
//
//   JSON    = "{" head members "," '"results": [' row* "]" "," tail members "," '"complete": ' bool
//             ["," '"error": ' text] "}"
//   JSONL   = a line for the head, for each row, and for the tail
//   CSV     = a line of column names, a line for each row, ["# incomplete: " text]
class RecordFile {
 public:
  // Empty paths: no file. Throws UsageError when one cannot be written. Changes nothing yet.
  RecordFile(const std::string& json, const std::string& csv, const std::string& jsonl);

  // head: an object. columns: the members of rows, or else of the head, that the CSV file has; one
  // that both lack, or that is null, is empty there.
  void begin(Json head, std::vector<std::string> columns);
  void add(const Json& row);
  // Members after the results. Call it once; reports a line that it cannot write.
  void set_tail(const Json& tail);
  // Writes what was added. Tries both files, then throws as ResultFile::update does. When both fail
  // it throws the error of the JSON file, and says the other one.
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
  std::optional<LineFile> lines_;
  Json head_;
  std::vector<std::string> columns_;
  std::string tail_;
  bool begun_ = false, first_ = true;
};

}  // namespace rondo::tools
