// What llama.cpp's llama_chat_apply_template makes of conversations, for every built-in name: one line of JSON a name.
#include "llama.h"
#include <cstdio>
#include <string>
#include <vector>
using Talk = std::vector<std::pair<const char*, const char*>>;
static std::string quoted(const std::string& s) {
  std::string o = "\"";
  for (unsigned char c : s) {
    char b[8];
    if (c == '"' || c == '\\') { o += '\\'; o += (char)c; }
    else if (c < 0x20) { snprintf(b, 8, "\\u%04x", c); o += b; }
    else o += (char)c;
  }
  return o + "\"";
}
int main() {
  const std::vector<Talk> talks = {
    {{"user", "Hello"}},
    {{"system", "Be brief."}, {"user", "What is a ternary weight?"}},
    {{"system", " Be \n kind.\t\n"}, {"user", "  Hi \"you\" & \xc3\xa9\n\n"}, {"assistant", "\x0b Well,\n\n met. \f\r"}, {"user", "\xc2\xa0 Bye \xe3\x80\x80"}},
    {{"user", "One"}, {"assistant", "Two"}, {"user", "Three"}, {"assistant", " Four "}},
    {{"system", "A"}, {"system", "B "}, {"user", "C"}, {"user", ""}, {"system", "D"}, {"assistant", "E"}, {"assistant", "F"}},
    {{"assistant", "I begin."}, {"user", "Call it."}, {"assistant", "Calling."}, {"tool", " {\"n\": 1} "}, {"assistant", ""}},
    {{"system", " Alone "}},
  };
  const char* names[256];
  int n = llama_chat_builtin_templates(names, 256);
  printf("{\n\"talks\": [\n");
  for (size_t t = 0; t < talks.size(); t++) {
    printf("[");
    for (size_t i = 0; i < talks[t].size(); i++)
      printf("%s[%s, %s]", i ? ", " : "", quoted(talks[t][i].first).c_str(), quoted(talks[t][i].second).c_str());
    printf("]%s\n", t + 1 < talks.size() ? "," : "");
  }
  printf("],\n\"texts\": {\n");
  for (int k = 0; k < n; k++) {
    printf("%s: [\n", quoted(names[k]).c_str());
    for (size_t t = 0; t < talks.size(); t++) {
      std::vector<llama_chat_message> m;
      for (auto& p : talks[t]) m.push_back({p.first, p.second});
      std::string both[2];
      for (int answer = 0; answer < 2; answer++) {
        std::vector<char> out(65536);
        int len = llama_chat_apply_template(names[k], m.data(), m.size(), answer, out.data(), out.size());
        if (len < 0) { fprintf(stderr, "%s: %d\n", names[k], len); return 1; }
        both[answer] = std::string(out.data(), len);
      }
      printf("[%s, %s]%s\n", quoted(both[0]).c_str(), quoted(both[1]).c_str(), t + 1 < talks.size() ? "," : "");
    }
    printf("]%s\n", k + 1 < n ? "," : "");
  }
  printf("}\n}\n");
}
