"""A small shop in Django's admin, in one file: `python django_site.py FOLDER PORT USER PASSWORD` serves it.

Run by a Python that has Django; nothing of Holotron is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER, PORT, USER, PASSWORD = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]

import django  # noqa: E402
from django.conf import settings  # noqa: E402

settings.configure(
    DEBUG=True,
    SECRET_KEY="only for this test",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    STATIC_URL="/static/",
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(FOLDER / "shop.sqlite3")}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.staticfiles",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.core.management import call_command, execute_from_command_line  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.forms import DateInput, ModelForm  # noqa: E402
from django.http import HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.shortcuts import redirect  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils.html import format_html  # noqa: E402


class Customer(models.Model):
    name = models.CharField(max_length=100)

    class Meta:
        app_label = "auth"  # an app of its own would need a module of its own

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    title = models.CharField(max_length=100)
    status = models.CharField(max_length=20, choices=[(s, s.title()) for s in ("new", "paid", "shipped", "returned")])
    customer = models.ForeignKey(Customer, null=True, blank=True, on_delete=models.SET_NULL)
    due = models.DateField(null=True, blank=True)
    shipped = models.DateField(null=True, blank=True)
    archived = models.BooleanField(default=False, editable=False)

    class Meta:
        app_label = "auth"

    def __str__(self) -> str:
        return self.title


class OrderForm(ModelForm):
    class Meta:
        model = Order
        fields = ("title", "status", "customer", "due", "shipped")
        widgets = {"shipped": DateInput(attrs={"type": "date"}, format="%Y-%m-%d")}  # noqa: RUF012


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    form = OrderForm
    readonly_fields = ("archive",)

    def archive(self, order: Order) -> str:
        if order.pk is None:
            return "-"
        script = "if (confirm('Archive this order?')) location = this.dataset.to"
        return format_html(
            '<button type=button id=archive data-to="/archive/{}" onclick="{}">Archive</button>', order.pk, script
        )


admin.site.register(Customer)


def archive(request: HttpRequest, pk: int) -> HttpResponse:
    Order.objects.filter(pk=pk).update(archived=request.user.is_staff)
    return redirect(f"/admin/auth/order/{pk}/change/")


def state(request: HttpRequest) -> JsonResponse:
    """What the database holds, for the test."""
    orders = Order.objects.values("title", "status", "customer__name", "due", "shipped", "archived")
    return JsonResponse({"orders": list(orders)})


urlpatterns = [path("admin/", admin.site.urls), path("archive/<int:pk>", archive), path("state", state)]

if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Customer)
        editor.create_model(Order)
    from django.contrib.auth.models import User

    User.objects.create_superuser(USER, "", PASSWORD)
    execute_from_command_line(["django_site.py", "runserver", "--noreload", f"127.0.0.1:{PORT}"])
