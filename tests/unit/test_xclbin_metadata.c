/* xclbin_metadata: kl_kernel's description in the XML, as written, as v++ may write it, and wrong in each
 * place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/xclbin.h"
#include "xclbin_file.h"

/* Frees the file. */
static void expect_refused(struct xclbin_file file, const char *why)
{
    struct xclbin out;
    char error[XCLBIN_ERROR_CHARS] = "";
    if (!xclbin_parse(file.bytes, file.size_bytes, "f.xclbin", &out, error))
        fail_msg("accepted, not refused with '%s'", why);
    if (strncmp(error, "f.xclbin: section EMBEDDED_METADATA: ", 37) != 0 || !strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
    free(file.bytes);
}

/* Frees the file. */
static struct xclbin expect_accepted(struct xclbin_file file)
{
    struct xclbin out = {0};
    char error[XCLBIN_ERROR_CHARS] = "";
    if (xclbin_parse(file.bytes, file.size_bytes, "f.xclbin", &out, error))
        fail_msg("%s", error);
    free(file.bytes);
    return out;
}

static void metadata_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *why;
    } edit[] = {
        {"kernel name=\"kl_kernel\"", "kernel name=\"vadd\"", "no kernel kl_kernel"},
        {"<core ", "<cores ", "not well-formed"},
        {"</kernel>", "</kernel><kernel name=\"kl_kernel\"/>", "kl_kernel is there twice"},
        {"offset=\"0x30\"", "offset=\"0x34\"", "argument image at offset 0x34, not 0x30"},
        {"offset=\"0x30\"", "offset=\"-48\"", "argument of kl_kernel (image) without"},
        {"offset=\"0x30\"", "offset=\"0x30z\"", "argument of kl_kernel (image) without"},
        {"offset=\"0x30\"", "offset=\"99999999999999999999\"", "argument of kl_kernel (image) without"},
        {"offset=\"0x30\"", "", "argument of kl_kernel (image) without"},
        {"name=\"slot\" ", "", "argument of kl_kernel (no name) without"},
        {"name=\"slot\"", "name=\"slit\"", "argument 1 is slit, not slot"},
        {"id=\"1\"", "id=\"0\"", "argument 0 is slot, not command"},
        {"id=\"1\"", "id=\"one\"", "id 'one' is no number"},
        {"id=\"1\"", "id=\"99999999999\"", "id '99999999999' is no number"},
        {"id=\"1\"", "id=\"\"", "no argument 1 (slot)"},
        {"<arg name=\"state\"", "<org name=\"state\"", "no argument 7 (state)"},
        {"addressQualifier=\"1\"", "addressQualifier=\"0\"", "argument image: addressQualifier 0"},
        {"size=\"0x8\"", "size=\"0x4\"", "argument image: addressQualifier 1, size 4"},
        {"range=\"0x4000\"", "range=\"0x3fff\"", "a range of 0x3fff bytes: 0x4000 at least"},
        {"range=\"0x4000\"", "range=\"0x100000000\"", "below 4 GiB"},
        {"range=\"0x4000\"", "", "slave port has no range"},
        {"mode=\"slave\"", "mode=\"master\"", "no slave port"},
        {"<project ", "<!DOCTYPE project [<!ENTITY a \"b\">]><project ", "DOCTYPE"},
        {"</project>", "", "not well-formed XML"},
        {"</project>", "</project><project/>", "not well-formed XML"},
        {"<project ", "", "not well-formed XML: line 2"},
    };
    for (size_t i = 0; i < sizeof edit / sizeof edit[0]; i++) {
        struct xclbin_file file = xclbin_file_make(1, 0);
        xclbin_file_edit(&file, edit[i].from, edit[i].to);
        expect_refused(file, edit[i].why);
    }
    struct xclbin_file file = xclbin_file_make(1, 0);
    xclbin_file_edit(&file, "<kernelClocks/>", "<kernelClocks/><kernel name=\"kl_kernel\"/>");
    expect_refused(file, "kl_kernel is there twice");
    file = xclbin_file_make(1, 0); /* not where XRT looks */
    xclbin_file_edit(&file, "<platform ", "<plateform ");
    xclbin_file_edit(&file, "</platform>", "</plateform>");
    expect_refused(file, "no kernel kl_kernel");
    file = xclbin_file_make(1, 0);
    xclbin_file_edit(
        &file, "</kernel>",
        "<arg name=\"slot\" addressQualifier=\"0\" id=\"1\" size=\"0x4\" offset=\"0x18\"/></kernel>");
    expect_refused(file, "argument slot is there twice");
}

/* n elements in one another, in the core (4 deep already). The caller frees. */
static char *nested(int n)
{
    char *text = calloc(1, (size_t)n * 7 + 1), *at = text;
    assert_non_null(text);
    for (int i = 0; i < n; i++)
        at = stpcpy(at, "<a>");
    for (int i = 0; i < n; i++)
        at = stpcpy(at, "</a>");
    return text;
}

/* XRT's own parser would end its stack. */
static void nested_elements(void **state)
{
    (void)state;
    static const int deep[] = {61, 200000};
    char *text = nested(60);
    struct xclbin_file file = xclbin_file_make(1, 0);
    xclbin_file_edit(&file, "<kernelClocks/>", text);
    free(text);
    expect_accepted(file);
    for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++) {
        text = nested(deep[i]);
        file = xclbin_file_make(1, 0);
        xclbin_file_edit(&file, "<kernelClocks/>", text);
        free(text);
        expect_refused(file, "nested more than 64 deep");
    }
}

/* Kernels elsewhere than where XRT looks, and what v++ writes besides. */
static void metadata_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } edit[] = {
        {"<kernelClocks/>", "<x><kernel name=\"kl_kernel\"/></x>"},
        {"</kernel>", "</kernel><kernel name=\"vadd\"><arg name=\"a\"/></kernel>"},
        {"<kernelClocks/>", "<kernel name=\"vadd\"><arg name=\"a\"/><port mode=\"slave\"/></kernel>"},
        {"</kernel>",
         "<arg name=\"reg\" addressQualifier=\"0\" id=\"8\" size=\"0x4\" offset=\"0x2000\"/></kernel>"},
        {"</kernel>", "<arg name=\"printf_buffer\" addressQualifier=\"1\" id=\"\" size=\"0x8\" "
                      "offset=\"0x60\"/></kernel>"},
        {"</kernel>", "<instance name=\"x\"><arg name=\"slot\"/><port mode=\"slave\"/></instance></kernel>"},
        {"</kernel>", "<port name=\"second\" mode=\"slave\" range=\"0x10\"/></kernel>"},
        {"offset=\"0x30\"", "offset=\"48\""},
        {"range=\"0x4000\"", "range=\"0x10000\""},
    };
    for (size_t i = 0; i < sizeof edit / sizeof edit[0]; i++) {
        struct xclbin_file file = xclbin_file_make(1, 0);
        xclbin_file_edit(&file, edit[i].from, edit[i].to);
        assert_int_equal(expect_accepted(file).n_unit, 1);
    }
    struct xclbin_file file = xclbin_file_make(1, 0);
    const struct axlf_section_header header = *xclbin_file_header(&file, EMBEDDED_METADATA);
    uint8_t *text = calloc(1, header.m_sectionSize + 9);
    assert_non_null(text);
    memcpy(text, file.bytes + header.m_sectionOffset, header.m_sectionSize);
    text[header.m_sectionSize + 4] = '<'; /* behind a NUL */
    xclbin_file_replace(&file, EMBEDDED_METADATA, text, header.m_sectionSize + 9);
    free(text);
    expect_accepted(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_refused),
        cmocka_unit_test(nested_elements),
        cmocka_unit_test(metadata_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
